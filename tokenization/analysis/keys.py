"""Names of keys and scales, such as `C`, `F#m` or `D dorian`, and their pitch classes."""

from __future__ import annotations

import re

_NOTES = {"C": 0, "D": 2, "E": 4, "F": 5, "G": 7, "A": 9, "B": 11}
_SIGNS = {"": 0, "#": 1, "♯": 1, "b": -1, "♭": -1}
SCALES: dict[str, tuple[int, ...]] = {
    "major": (0, 2, 4, 5, 7, 9, 11),
    "minor": (0, 2, 3, 5, 7, 8, 10),
    "harmonic minor": (0, 2, 3, 5, 7, 8, 11),
    "melodic minor": (0, 2, 3, 5, 7, 9, 11),
    "dorian": (0, 2, 3, 5, 7, 9, 10),
    "phrygian": (0, 1, 3, 5, 7, 8, 10),
    "lydian": (0, 2, 4, 6, 7, 9, 11),
    "mixolydian": (0, 2, 4, 5, 7, 9, 10),
    "locrian": (0, 1, 3, 5, 6, 8, 10),
    "major pentatonic": (0, 2, 4, 7, 9),
    "minor pentatonic": (0, 3, 5, 7, 10),
    "blues": (0, 3, 5, 6, 7, 10),
    "whole tone": (0, 2, 4, 6, 8, 10),
}
"""Semitones above the tonic."""
_LETTERS = {"M": "major", "m": "minor"}
_WORDS = {"maj": "major", "ionian": "major", "min": "minor", "aeolian": "minor", "natural": ""}
_KEY = re.compile(r"([A-Ga-g])([#♯b♭]?)([A-Za-z\s]*)")
_MOST_LETTERS = 40


def pitch_classes(key: str) -> frozenset[int]:
    """The pitch classes of a key or scale, 0 for C to 11 for B.

    Case is ignored, except for M and m. Raises ValueError for other names.
    """
    plain = re.sub(r"\s*sharp", "#", key.strip().replace("-", " "), flags=re.IGNORECASE)
    plain = re.sub(r"\s*flat", "b", plain, flags=re.IGNORECASE)
    match = _KEY.fullmatch(plain) if len(key) <= _MOST_LETTERS else None
    words = match[3].split() if match else []
    plainer = (_LETTERS.get(word) or _WORDS.get(word.lower(), word.lower()) for word in words)
    name = " ".join(filter(None, plainer)) or "major"
    if match is None or name not in SCALES:
        raise ValueError(
            f"key is {key[:_MOST_LETTERS]!r}, expected a note from A to G, optionally with # or b, "
            "and m or the name of a scale unless it is major, such as C, F#m, Bb or D dorian; "
            f"scales are {', '.join(SCALES)}"
        )
    tonic = _NOTES[match[1].upper()] + _SIGNS[match[2]]
    return frozenset((tonic + semitones) % 12 for semitones in SCALES[name])
