"""Encodings that add scores by offset, SIREN among them."""
