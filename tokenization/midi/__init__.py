"""MIDI files: reading, writing, appending, replacing and cutting."""

from tokenization.midi.append import append_to_midi, replace_in_midi
from tokenization.midi.cut import cut_midi
from tokenization.midi.reader import read_midi
from tokenization.midi.writer import write_midi

__all__ = ["append_to_midi", "cut_midi", "read_midi", "replace_in_midi", "write_midi"]
