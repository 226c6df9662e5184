"""Chords as musicians write them: `Am7`, `G/B`."""

from __future__ import annotations

import re
from typing import Final

from tokenization.analysis.keys import NOTES, SIGNS, pitch_class_name
from tokenization.plan import Chord, Key

SUFFIXES: Final = ("", "m", "dim", "aug", "7", "maj7", "m7", "dim7", "m7b5", "sus2", "sus4")
"""What follows the root in the symbol of each of `QUALITIES`."""
REDUCED: Final = {
    **{"M": "", "maj": "", "min": "m", "-": "m", "o": "dim", "°": "dim", "+": "aug"},
    **{"5": "", "6": "", "69": "", "6/9": "", "add9": "", "add2": "", "add11": "", "2": "sus2"},
    **{"m6": "m", "min6": "m", "-6": "m", "m69": "m", "madd9": "m", "mmaj7": "m", "m(maj7)": "m"},
    **{"9": "7", "11": "7", "13": "7", "7b5": "7", "7b9": "7", "7#9": "7", "7#11": "7"},
    **{"7b13": "7", "alt": "7", "7alt": "7", "9b5": "7", "9#5": "7", "9#11": "7", "13b9": "7"},
    **{"M7": "maj7", "Δ": "maj7", "Δ7": "maj7", "^7": "maj7", "j7": "maj7", "maj9": "maj7"},
    **{"M9": "maj7", "maj11": "maj7", "maj13": "maj7", "maj7#11": "maj7", "maj7b5": "maj7"},
    **{"min7": "m7", "-7": "m7", "m9": "m7", "m11": "m7", "m13": "m7", "min9": "m7"},
    **{"o7": "dim7", "°7": "dim7", "ø": "m7b5", "ø7": "m7b5", "min7b5": "m7b5", "m9b5": "m7b5"},
    **{"sus": "sus4", "7sus4": "sus4", "7sus": "sus4", "9sus4": "sus4", "13sus4": "sus4"},
    **{"9sus": "sus4", "7sus2": "sus2", "aug7": "aug", "+7": "aug", "7#5": "aug", "maj7#5": "aug"},
}
"""Other suffixes, and the one of `SUFFIXES` that is used instead: chords with more notes become
those of their triad or seventh."""

_SYMBOL = re.compile(r"([A-G])([#b♯♭]?)(.*?)(?:/([A-G])([#b♯♭]?))?")


def chord_symbol(chord: Chord | None, key: Key | None = None) -> str:
    """The symbol of a chord, spelled as in a key: `Bbmaj7`, `G/B`; `N.C.` for no chord."""
    if chord is None:
        return "N.C."
    root = pitch_class_name(chord.root, key) + SUFFIXES[chord.quality]
    if chord.bass is None or chord.bass == chord.root:
        return root
    return f"{root}/{pitch_class_name(chord.bass, key)}"


def parse_chord(symbol: str) -> Chord | None:
    """The chord of a symbol, reduced to the eleven qualities; None for `N.C.`.

    Raises ValueError for a symbol that is not known.
    """
    if symbol in ("N.C.", "NC", "N"):
        return None
    match = _SYMBOL.fullmatch(symbol)
    suffix = match[3] if match else ""
    # the ninth in 6/9 is not a bass
    plain = re.sub(r"[(),\s]", "", suffix).replace("♯", "#").replace("♭", "b")
    plain = REDUCED.get(suffix, REDUCED.get(plain, plain))
    if match is None or plain not in SUFFIXES:
        raise ValueError(
            f"chord is {symbol[:20]!r}, expected a root from A to G, optionally with # or b, a "
            f"quality and a bass, such as C, F#m7, Bbmaj7 or G/B; qualities are "
            f"{', '.join(filter(None, (*SUFFIXES, *REDUCED)))}"
        )
    root = (NOTES[match[1]] + SIGNS[match[2]]) % 12
    bass = (NOTES[match[4]] + SIGNS[match[5]]) % 12 if match[4] else None
    return Chord(root, SUFFIXES.index(plain), None if bass == root else bass)
