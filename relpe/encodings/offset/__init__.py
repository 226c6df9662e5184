"""Encodings that score the offset between query and key, such as SIREN."""
