"""The built-in SoundFont player."""

BLOCK = 1 << 18
"""Number of samples that are processed at a time, which bounds the memory."""
