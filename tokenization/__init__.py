"""MIDI files, notes, tokens: everything between a file and the integers a model reads."""
