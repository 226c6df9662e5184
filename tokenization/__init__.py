"""MIDI files to scores, scores to token ids, and back."""

from tokenization.document import Document, Header, Selection
from tokenization.errors import MidiError, TokenizerError
from tokenization.midi import append_to_midi, cut_midi, read_midi, write_midi
from tokenization.plan import BarPlan, Chord, Key, Plan, PlannedChord
from tokenization.presets import PRESETS, TokenizerConfig, load_tokenizer
from tokenization.remi import MultitrackRemi, PianoRemi, Remi
from tokenization.score import Note, Score, Tempo, TimeSignature, Track
from tokenization.tokenizer import TokenSequence, Vocabulary

__all__ = [
    "PRESETS",
    "BarPlan",
    "Chord",
    "Document",
    "Header",
    "Key",
    "MidiError",
    "MultitrackRemi",
    "Note",
    "PianoRemi",
    "Plan",
    "PlannedChord",
    "Remi",
    "Score",
    "Selection",
    "Tempo",
    "TimeSignature",
    "TokenSequence",
    "TokenizerConfig",
    "TokenizerError",
    "Track",
    "Vocabulary",
    "append_to_midi",
    "cut_midi",
    "load_tokenizer",
    "read_midi",
    "write_midi",
]
