"""MIDI files to scores and back."""
