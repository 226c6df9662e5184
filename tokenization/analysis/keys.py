"""Keys: estimation from notes; names of keys and scales, such as `C`, `F#m` or `D dorian`."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from tokenization.analysis.chords import pitched_notes
from tokenization.grid import notated_lines
from tokenization.plan import Key
from tokenization.score import Score

NOTES = {"C": 0, "D": 2, "E": 4, "F": 5, "G": 7, "A": 9, "B": 11}
SIGNS = {"": 0, "#": 1, "♯": 1, "b": -1, "♭": -1}
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
    """Return the pitch classes of a key or scale, 0 for C to 11 for B.

    Case is ignored, except for M and m. Raises ValueError for other names.
    """
    tonic, scale = _parse(key)
    return frozenset((tonic + semitones) % 12 for semitones in SCALES[scale])


def named_key(key: str) -> Key | None:
    """Return the major or minor key of a name.

    The result is None for other scales. Raises like `pitch_classes`.
    """
    tonic, scale = _parse(key)
    return Key(tonic, scale == "minor") if scale in ("major", "minor") else None


def _parse(key: str) -> tuple[int, str]:
    """Return the tonic, a pitch class, and name of the scale."""
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
    return (NOTES[match[1].upper()] + SIGNS[match[2]]) % 12, name


# Fitted by logistic regression to the key labels of the training splits of POP909 and of the groove
# corpus, and rounded to halves (measured by benchmarks.tokenization.bench_plan).
_PROFILES = np.array(
    [
        [7, -0.5, 0.5, -4, 3.5, 2.5, -4, 6, -1, -2, -6, 1.5],
        [7, -5, 1, 2.5, -5, -1, -2.5, 5, 1.5, -5, -2.5, 0.5],
    ]
)
"""Weights of the pitch classes above the tonic in the score of a major and a minor key (2, 12)."""
_BIASES = (0, 1.5)
_DECIMALS = 9
_BEGINNING_BARS, _ENDING_BARS = 16, 8
_CLEARLY = 2.0
"""By how much the score of another key is larger where a piece has modulated."""

_MAJOR_KEYS = ("C", "Db", "D", "Eb", "E", "F", "Gb", "G", "Ab", "A", "Bb", "B")
_MINOR_KEYS = ("C", "C#", "D", "Eb", "E", "F", "F#", "G", "G#", "A", "Bb", "B")


def key_name(key: Key) -> str:
    """Return the name of a key: `Bb major`, `F# minor`."""
    return f"{tonic_name(key)} {'minor' if key.minor else 'major'}"


def tonic_name(key: Key) -> str:
    """Return the name of a tonic: `Bb`, `F#`."""
    return (_MINOR_KEYS if key.minor else _MAJOR_KEYS)[key.tonic]


def estimate_key(score: Score) -> Key | None:
    """Return the key in which the pitches of a score fit best; None without pitched notes.

    The score of a key is linear in the square roots of the shares of time for which each pitch
    class sounds (after Krumhansl and Schmuckler: Krumhansl, 1990, chapter 4).
    """
    notes = pitched_notes(score)
    ticks = np.bincount(notes[:, 2] % 12, notes[:, 1], 12)
    return best_key(ticks, int(notes[:, 2].min(initial=128)))


def best_key(ticks: NDArray[np.number], lowest: int = 0) -> Key | None:
    """Return the key for durations of the pitch classes (12,) and the lowest pitch.

    See `estimate_key`.
    """
    if not ticks.any():
        return None
    scores, lowest = _scores_of_keys(ticks), lowest % 12
    # of equally good keys, the tonic that is the next above the lowest pitch
    place, minor = divmod(int(np.roll(scores, -lowest, axis=0).argmax()), 2)
    return Key((place + lowest) % 12, bool(minor))


def key_at_end(score: Score) -> Key | None:
    """Return the key in which a piece can close; None without pitched notes.

    It is that of its first 16 bars with notes, unless the last eight bars are clearly in another
    one (fitted to the labels of POP909 and of the groove corpus).
    """
    onsets = [int(track.notes[0, 0]) for track in score.tracks if len(track)]
    if not onsets:
        return None
    lines = notated_lines(score, score.end_ticks)
    first = int(np.searchsorted(lines, min(onsets), side="right")) - 1
    stop = min(first + _BEGINNING_BARS, len(lines) - 1)
    key = estimate_key(score.between(int(lines[first]), int(lines[stop])))
    ending = score.between(int(lines[max(len(lines) - 1 - _ENDING_BARS, 0)]), int(lines[-1]))
    last = estimate_key(ending)
    if key is None or last is None:
        return estimate_key(score)
    notes = pitched_notes(ending)
    scores = _scores_of_keys(np.bincount(notes[:, 2] % 12, notes[:, 1], 12))
    far = scores[last.tonic, int(last.minor)] - scores[key.tonic, int(key.minor)]
    return last if far > _CLEARLY else key


def _scores_of_keys(ticks: NDArray[np.number]) -> NDArray[np.float64]:
    """Return scores (12, 2) of major and minor keys for durations of the pitch classes (12,)."""
    shares = np.sqrt(ticks / ticks.sum())
    # each rotation by itself, so that transposed music gives exactly the same sums
    above = np.stack([np.roll(shares, -tonic) for tonic in range(12)])
    totals: NDArray[np.float64] = (above[:, None] * _PROFILES).sum(2) + _BIASES
    return np.round(totals, _DECIMALS)
