"""The built-in SoundFont player."""

BLOCK = 1 << 18
"""Samples computed, read, added or written at a time, which bounds the memory."""
