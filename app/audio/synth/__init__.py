"""The built-in SoundFont player."""

BLOCK = 1 << 18
"""Number of samples processed at a time, to limit memory."""
