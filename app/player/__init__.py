"""The piano-roll player in the browser."""
