"""Pieces with the same melody or the same tokens, which must not be in different splits."""
