"""Values and plots of learned positional encodings."""
