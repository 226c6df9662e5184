"""Public data sets: where they are, and their download."""
