"""Listening tests: the rating page, its answers, and the report on them."""
