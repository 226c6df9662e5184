"""From a MIDI file to its continuation: start with `continuation.py`."""
