"""Algebraic positional encodings (Kogkalidis et al., 2024)."""
