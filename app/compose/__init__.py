"""Continues MIDI files and generates pieces from nothing. Start reading at `continuation.py`."""
