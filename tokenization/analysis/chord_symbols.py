"""Chords as musicians write them: `Am7`, `G/B`."""

from __future__ import annotations

import re
from typing import Final

from tokenization.analysis.chords import QUALITIES
from tokenization.analysis.keys import NOTES, SIGNS, pitch_class_name
from tokenization.plan import Chord, Key

SUFFIXES: Final = {
    "M": ("", "M", "maj", "5", "6", "69", "6/9", "2", "add2", "add9", "add11"),
    "m": ("m", "min", "-", "m6", "m69", "madd9", "mM7", "mmaj7", "m(maj7)"),
    "o": ("dim", "o", "°", "mb5"),
    "+": ("aug", "+", "#5"),
    "7": ("7", "9", "11", "13", "7b5", "7#5", "7b9", "7#9", "7#11", "7b13", "aug7", "+7"),
    "M7": ("maj7", "M7", "Δ", "Δ7", "M9", "maj9", "maj11", "M13", "maj13", "maj7#11"),
    "m7": ("m7", "min7", "-7", "m9", "min9", "m11", "m13"),
    "o7": ("dim7", "o7", "°7"),
    "/o7": ("m7b5", "min7b5", "-7b5", "ø", "ø7", "/o7"),
    "sus2": ("sus2", "7sus2", "9sus2"),
    "sus4": ("sus4", "sus", "7sus", "7sus4", "9sus4", "13sus4"),
}
"""Endings of chord symbols by the quality that represents them: added notes are left out. The first
one is written."""
_QUALITY = {suffix: QUALITIES.index(name) for name, of in SUFFIXES.items() for suffix in of}
_NO_CHORD = ("N.C.", "NC", "N")
_NOTE = r"([A-G])([#♯b♭]?)"
_CHORD = re.compile(rf"{_NOTE}(.*?)(?:/{_NOTE})?")
_MOST_LETTERS = 20


def chord_symbol(chord: Chord | None, key: Key | None = None) -> str:
    """The symbol of a chord, spelled as in a key: `Bbmaj7`, `G/B`; `N.C.` for no chord."""
    if chord is None:
        return _NO_CHORD[0]
    symbol = pitch_class_name(chord.root, key) + SUFFIXES[QUALITIES[chord.quality]][0]
    if chord.bass is None or chord.bass == chord.root:
        return symbol
    return f"{symbol}/{pitch_class_name(chord.bass, key)}"


def parse_chord(symbol: str) -> Chord | None:
    """A chord from its symbol, such as `F#m7` or `G/B`; None for `N`. Raises ValueError."""
    if symbol in _NO_CHORD:
        return None
    match = _CHORD.fullmatch(symbol) if len(symbol) <= _MOST_LETTERS else None
    if match is None or match[3] not in _QUALITY:
        raise ValueError(
            f"the chord {symbol[:_MOST_LETTERS]!r} is not understood, expected a root from A to G, "
            "optionally with # or b, and a quality, such as C, F#m, Bb7, Gsus4 or G/B; N for no "
            "chord"
        )
    root = (NOTES[match[1]] + SIGNS[match[2]]) % 12
    bass = (NOTES[match[4]] + SIGNS[match[5]]) % 12 if match[4] else root
    return Chord(root, _QUALITY[match[3]], None if bass == root else bass)
