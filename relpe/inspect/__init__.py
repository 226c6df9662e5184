"""Numbers and pictures of learned positional encodings."""
