"""MIDI files: reading, writing, appending and cutting."""

from tokenization.midi.append import append_to_midi
from tokenization.midi.cut import cut_midi
from tokenization.midi.reader import read_midi
from tokenization.midi.writer import write_midi

__all__ = ["append_to_midi", "cut_midi", "read_midi", "write_midi"]
