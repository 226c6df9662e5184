"""The rating page of a listening test: a small server, and HTML with its own scripts."""
