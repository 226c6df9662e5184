"""Continues MIDI files and generates pieces from nothing: start reading at `continuation.py`."""
