"""Search for notes of generated music that are copied from the training corpus.

A run consists of consecutive notes of a track, in the order of onset and pitch. Two runs are copies
if their steps from note to note are equal: the time between onsets, on a grid of twelfths of a
beat, and the interval in semitones (for drums, the pitch itself). Transposition, instruments,
durations, velocities, tempo and the position in the bar are ignored. Common patterns occur in all
music, most of all in drum tracks, so shares should be compared with those of held-out real music.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from tokenization.measures.bars import BarNotes
from tokenization.remi.remi import Remi
from tokenization.score import Score
from training.data.corpus import Corpus

SIZES = (8, 16, 32)
"""Lengths of the counted runs, in notes."""

_FACTOR = np.uint64(0x9E3779B97F4A7C15 | 1)
_INVERSE = np.uint64(pow(int(_FACTOR), -1, 1 << 64))
_LONGEST_STEP = 1 << 20


class _Steps(NamedTuple):
    """Steps from note to note of many tracks; hashes any run in constant time.

    The hash is a polynomial in an odd base, modulo 2^64, of the mixed steps of the run. It is the
    difference of two prefix sums, divided by the power of the base at the start of the run.
    """

    stops: NDArray[np.int64]
    """(m,): end of the track of each step."""
    prefixes: NDArray[np.uint64]
    """(m + 1,)"""

    @classmethod
    def of(cls, tracks: Sequence[NDArray[np.uint64]]) -> _Steps:
        lengths = np.array([len(track) for track in tracks], np.int64)
        steps = np.concatenate([np.zeros(0, np.uint64), *tracks])
        # SplitMix64 (Steele et al., 2014) decorrelates similar steps
        steps = (steps + np.uint64(1)) * _FACTOR
        steps = (steps ^ (steps >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        steps = (steps ^ (steps >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        steps ^= steps >> np.uint64(31)
        steps *= _powers(_FACTOR, len(steps))
        prefixes = np.zeros(len(steps) + 1, np.uint64)
        np.cumsum(steps, out=prefixes[1:])
        return cls(np.repeat(lengths.cumsum(), lengths), prefixes)

    def hashes(
        self, places: NDArray[np.int64], length: int, inverses: NDArray[np.uint64]
    ) -> NDArray[np.uint64]:
        """Hash the runs of `length` steps at these indices; each must fit in its track."""
        return (self.prefixes[places + length] - self.prefixes[places]) * inverses[places]


def _powers(base: np.uint64, count: int) -> NDArray[np.uint64]:
    """Return base^0 ... base^(count - 1), modulo 2^64."""
    powers = np.full(count, base, np.uint64)
    powers[:1] = 1
    return np.cumprod(powers, out=powers)


def _tracks_of(score: Score) -> list[NDArray[np.uint64]]:
    """Return the steps from note to note of each track, each packed into an integer."""
    notes = BarNotes.of(score)
    tracks: list[NDArray[np.uint64]] = []
    for track in range(len(notes.keys)):
        is_of_track = notes.tracks == track
        waits = np.minimum(np.diff(notes.onsets[is_of_track]), _LONGEST_STEP)
        pitches = notes.pitches[is_of_track]
        is_drum = bool(notes.is_drum[is_of_track].any())
        tones = 256 + pitches[1:] if is_drum else 128 + np.diff(pitches)
        tracks.append((waits * 512 + tones).astype(np.uint64))
    return tracks


class NoteIndex:
    """Index of the notes of a corpus, which finds runs of notes in any transposition.

    Takes 24 bytes per note, and a few times that during a search.
    """

    def __init__(self, tracks: Sequence[NDArray[np.uint64]]) -> None:
        self._steps = _Steps.of(tracks)
        self._inverses = _powers(_INVERSE, len(self._steps.stops))

    @classmethod
    def of(cls, scores: Iterable[Score]) -> NoteIndex:
        """Return the index of the tracks of these scores."""
        return cls([track for score in scores for track in _tracks_of(score)])

    @classmethod
    def of_corpus(cls, corpus: Corpus, tokenizer: Remi) -> NoteIndex:
        """Return the index of all pieces of a split; takes seconds for a million notes."""
        pieces = tqdm(range(len(corpus)), desc="index", unit="piece", mininterval=2)
        return cls.of(tokenizer.decode(corpus.piece(index)) for index in pieces)

    def longest_runs(
        self, scores: Sequence[Score], least: int = min(SIZES)
    ) -> list[NDArray[np.int64]]:
        """Return the length of the longest indexed run from each note, except a track's last.

        One array (n - 1,) int64 per track of all scores, in notes; 0 if shorter than `least` notes.
        """
        tracks = [track for score in scores for track in _tracks_of(score)]
        lengths = self._search(_Steps.of(tracks), max(least, 2) - 1)
        return np.split(lengths, np.cumsum([len(track) for track in tracks])[:-1])[: len(tracks)]

    def _search(self, asked: _Steps, least: int) -> NDArray[np.int64]:
        """Return the length in notes of the longest indexed run from each step of `asked`.

        A prefix of an indexed run is also indexed, so for each further step only the positions that
        matched before are searched, in `asked` and in the index.
        """
        held, inverses = self._steps, _powers(_INVERSE, len(asked.stops))
        longest = np.zeros(len(asked.stops), np.int64)
        here, there = np.arange(len(asked.stops)), np.arange(len(held.stops))
        length = least
        with tqdm(desc="runs", unit="step", mininterval=2) as bar:
            while True:
                here = here[asked.stops[here] - here >= length]
                there = there[held.stops[there] - there >= length]
                asked_hashes = asked.hashes(here, length, inverses)
                kinds, kind = np.unique(asked_hashes, return_inverse=True)
                if not len(kinds):
                    return longest
                hashes = held.hashes(there, length, self._inverses)
                place = np.minimum(np.searchsorted(kinds, hashes), len(kinds) - 1)
                is_wanted = kinds[place] == hashes
                there = there[is_wanted]
                is_held = np.zeros(len(kinds), bool)
                is_held[place[is_wanted]] = True
                here = here[is_held[kind]]
                longest[here] = length + 1
                length += 1
                bar.update()


class Copies(NamedTuple):
    """Copies of an index in some music."""

    shares: Mapping[int, float]
    """By n: share of the runs of n notes that are in the index, 0 to 1; NaN if there are none."""
    longest: int
    """Notes of the longest run in the index; 0 if shorter than the smallest n."""
    num_notes: int


def copies(index: NoteIndex, scores: Sequence[Score], sizes: Sequence[int] = SIZES) -> Copies:
    """Copy in all scores together, prompts included; `new_music` removes prompts."""
    runs = index.longest_runs(scores, min(sizes))
    shares: dict[int, float] = {}
    for size in sizes:
        # a track of n notes has n - size + 1 runs, and n - 1 entries
        total = sum(max(len(track) + 2 - size, 0) for track in runs)
        num_covered = sum(int(np.count_nonzero(track >= size)) for track in runs)
        shares[size] = num_covered / total if total else float("nan")
    longest = max((int(track.max(initial=0)) for track in runs), default=0)
    return Copies(shares, longest, sum(score.num_notes for score in scores))
