"""Chords as musicians write them: `Am7`, `G/B`."""

from __future__ import annotations

import re
from typing import Final

from tokenization.analysis.chords import CHORD_INTERVALS, QUALITIES
from tokenization.analysis.keys import NOTES, SIGNS, tonic_name
from tokenization.analysis.spelling import FLATTEST, SHARPEST, name_at, place_named, place_of
from tokenization.plan import Chord, Key

SUFFIXES: Final = {
    "M": ("", "M", "maj", "5", "6", "69", "6/9", "2", "add2", "add9", "add11"),
    "m": ("m", "min", "-", "m6", "m69", "madd9", "mM7", "mmaj7", "m(maj7)"),
    "o": ("dim", "o", "°", "mb5"),
    "+": ("aug", "+", "#5"),
    "7": ("7", "9", "11", "13", "7b5", "7#5", "7b9", "7#9", "7#11", "7b13", "aug7", "+7"),
    "M7": (
        "maj7",
        "M7",
        "Δ",
        "Δ7",
        "△",
        "△7",
        "^",
        "^7",
        "M9",
        "maj9",
        "maj11",
        "M13",
        "maj13",
        "maj7#11",
    ),
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
_NOTE = r"([A-Ha-h])([#♯b♭]?)"
"""A root; H is B, as in German."""
_CHORD = re.compile(rf"{_NOTE}(.*?)(?:/{_NOTE})?")
_MOST_LETTERS = 20
_BELOW_TONIC = 5
"""Roots lie from this many fifths below the tonic to one more above it: in C, from Db to F#."""
_RAISED = 4
"""Fifths by which that range rises for diminished chords, which lead upwards: in C, C#dim."""
_DIMINISHED = tuple(QUALITIES.index(quality) for quality in ("o", "o7", "/o7"))
_FIFTHS = {0: 0, 2: 2, 3: -3, 4: 4, 5: -1, 6: -6, 7: 1, 8: 8, 9: -9, 10: -2, 11: 5}
"""Fifths from the root to a tone of a chord, by semitones above the root."""


def chord_symbol(chord: Chord | None, key: Key | None = None) -> str:
    """Return the symbol of a chord, spelled as in a key: `Bbmaj7`, `G/B`; `N.C.` for no chord."""
    if chord is None:
        return _NO_CHORD[0]
    lowest = 0 if key is None else place_named(tonic_name(key)) - _BELOW_TONIC
    begins = lowest
    if key is not None and chord.quality in _DIMINISHED:
        begins = max(lowest, min(lowest + _RAISED, 0))  # no E# and B# where others will do
    root = place_of(chord.root, _with_single_signs(begins))
    symbol = name_at(root) + SUFFIXES[QUALITIES[chord.quality]][0]
    if chord.bass is None or chord.bass == chord.root:
        return symbol
    above = (chord.bass - chord.root) % 12
    bass = root + _FIFTHS[above] if above in CHORD_INTERVALS[chord.quality] else None
    if bass is None or not FLATTEST <= bass <= SHARPEST:
        bass = place_of(chord.bass, _with_single_signs(lowest))
    return f"{symbol}/{name_at(bass)}"


def _with_single_signs(lowest: int) -> int:
    """Return the nearest place from which on twelve notes have at most one sign."""
    return max(FLATTEST, min(lowest, SHARPEST - 11))


def parse_chord(symbol: str) -> Chord | None:
    """Return a chord from its symbol, such as `F#m7` or `G/B`; None for `N`. Raises ValueError."""
    if symbol in _NO_CHORD:
        return None
    match = _CHORD.fullmatch(symbol) if len(symbol) <= _MOST_LETTERS else None
    if match is None or match[3] not in _QUALITY:
        raise ValueError(
            f"the chord {symbol[:_MOST_LETTERS]!r} is not understood, expected a root from A to G, "
            "optionally with # or b, and a quality, such as C, F#m, Bb7, Gsus4 or G/B; N for no "
            "chord"
        )
    root = _pitch_class(match[1], match[2])
    bass = _pitch_class(match[4], match[5]) if match[4] else root
    return Chord(root, _QUALITY[match[3]], None if bass == root else bass)


def _pitch_class(note: str, sign: str) -> int:
    return (NOTES[note.upper().replace("H", "B")] + SIGNS[sign]) % 12
