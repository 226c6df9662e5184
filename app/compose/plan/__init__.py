"""The plan of a piece as musicians write it: what it is, and what is asked of new music."""
