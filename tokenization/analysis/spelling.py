"""Names of pitch classes by their places on the line of fifths, … Bb F C G D A E B F# … .

F is at 0 and C at 1. A place names a note, so A# and Bb, one pitch class, are twelve places apart.
"""

from __future__ import annotations

from typing import Final

_LETTERS: Final = "FCGDAEB"
FLATTEST: Final = -7
"""Fb, the flattest note with a single sign."""
SHARPEST: Final = 13
"""B#."""


def place_of(pitch_class: int, lowest: int) -> int:
    """Return the place of a pitch class among the twelve from `lowest` on."""
    return lowest + (7 * pitch_class + 1 - lowest) % 12


def place_named(name: str) -> int:
    """Return the place of a note such as `Bb`."""
    return _LETTERS.index(name[0]) + 7 * (name.count("#") - name.count("b"))


def name_at(place: int, flat: str = "b") -> str:
    """Return the name of the note at a place."""
    signs, letter = divmod(place, 7)
    return _LETTERS[letter] + ("#" * signs if signs >= 0 else flat * -signs)
