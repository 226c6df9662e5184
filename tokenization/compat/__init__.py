"""Tokenizers that are compatible with those of other projects."""
