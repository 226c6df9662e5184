"""Musical form: returning bars, harmony over phrases, fit of the parts, melody and dynamics.

The measures take all bars of a passage and the index of its first new bar, and describe the new
bars. They apply to generated and to real music. The content of a bar is the set of (track, position
in the bar, exact pitch) of the notes that begin in it.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenization.analysis.chords import CHORD_INTERVALS, NO_CHORD, QUALITIES, recognise_chords
from tokenization.analysis.returns import similarity_to_earlier
from tokenization.grid import STEPS_PER_BEAT
from tokenization.measures.bars import BarNotes
from tokenization.measures.similarity import bar_similarity, longest_run, similarity_by_lag
from tokenization.remi.vocabulary import DRUMS
from tokenization.score import Score, Track

SELF_LAGS = (1, 4, 8, 16)
"""Distances at which new bars are compared with each other."""
ROOT_LAGS = (4, 8, 16)
"""Distances at which chord roots are compared."""
LEAST_PERIOD = 0.2
"""Root agreement over chance at one of `ROOT_LAGS` from which music has a harmonic period."""
STATIC_BARS = 8
"""Bars in a row with one chord from which harmony is static."""

_PHRASE_BARS = 4
_EIGHTH = STEPS_PER_BEAT // 2
_BASS_PROGRAMS = range(32, 40)
_NAN = float("nan")
_LOOK_BACK = 64
"""Earlier notes that are searched for a higher one that still sounds."""


def form(notes: BarNotes, first_bar: int) -> dict[str, float]:
    """Return all measures of form of the bars from `first_bar` on, by name; NaN where undefined.

    Returning bars: `most_similar_earlier`, `like_bar_before` (`returns`), `self_similarity_1` and
    so on (`similarity_by_lag` of `exact_similarity` among the new bars). Harmony: `harmony`. Parts:
    `bass_fits`, `clashes`, `fills`. Line and dynamics: `melody_similarity_4` and so on
    (`bar_similarity` of the melody alone), `melody_breaths`, `melody_range`, `velocity_deviation`,
    `density_drift`.
    """
    similarity = exact_similarity(notes)
    measures = returns(similarity, notes, first_bar)
    by_lag = similarity_by_lag(similarity[first_bar:, first_bar:], SELF_LAGS)
    measures |= {
        f"self_similarity_{lag}": float(x) for lag, x in zip(SELF_LAGS, by_lag, strict=True)
    }
    measures |= harmony(notes, first_bar)
    melody = melody_of(notes, first_bar)
    by_lag = similarity_by_lag(bar_similarity(melody)[first_bar:, first_bar:], ROOT_LAGS)
    measures |= {
        f"melody_similarity_{lag}": float(x) for lag, x in zip(ROOT_LAGS, by_lag, strict=True)
    }
    new = notes.velocities[notes.bars >= first_bar]
    return measures | {
        "bass_fits": bass_fits(notes, first_bar),
        "clashes": clashes(notes, first_bar),
        "fills": fills(notes, first_bar),
        "melody_breaths": melody_breaths(melody, notes.num_bars - first_bar),
        "melody_range": float(np.ptp(np.percentile(melody.pitches, (5, 95))))
        if len(melody.pitches)
        else _NAN,
        "velocity_deviation": float(new.std()) if len(new) else _NAN,
        "density_drift": density_drift(notes, first_bar),
    }


def exact_similarity(notes: BarNotes) -> NDArray[np.float64]:
    """Return the similarity (bars, bars) of the contents of two bars, 0 to 1; NaN if empty.

    The mean of the Jaccard index over the tracks that play in either bar; all drums are one track.
    """
    count = notes.num_bars
    filled = np.bincount(notes.bars, minlength=count) > 0
    similarity = np.diag(np.where(filled, 1, _NAN))
    sounds = notes.positions * 128 + notes.pitches
    reach = max(count - 1, 1)
    table = similarity_to_earlier(notes.bars, notes.tracks, sounds, 0, count, reach)
    later, earlier = np.tril_indices(count, -1)
    similarity[later, earlier] = similarity[earlier, later] = table[later, later - earlier - 1]
    return similarity


def returns(similarity: NDArray[np.float64], notes: BarNotes, first_bar: int) -> dict[str, float]:
    """Return how much new bars with notes resemble earlier bars, of the prompt or new.

    `most_similar_earlier`: mean similarity to the most similar one; `like_bar_before`: to the bar
    right before. `similarity` is that of `exact_similarity`.
    """
    filled = np.bincount(notes.bars, minlength=notes.num_bars) > 0
    places = np.flatnonzero(filled)
    places = places[(places >= first_bar) & (places > 0)]
    # empty bars are similar to none
    most = [similarity[place, :place].max() for place in places]
    before = similarity[places, places - 1]
    return {"most_similar_earlier": _mean(most), "like_bar_before": _mean(before)}


class BarHarmony(NamedTuple):
    """The main chord of each bar, and all changes of chord."""

    roots: NDArray[np.int64]
    """Root that sounds longest in each bar (bars,), or NO_CHORD."""
    chords: NDArray[np.int64]
    """Chord (root and quality) that sounds longest in each bar (bars,), or NO_CHORD."""
    beginnings: NDArray[np.int64]
    """Grid steps at which the chord changes (changes,)."""
    changes: NDArray[np.int64]
    """Root from each of these on (changes,)."""


def bar_harmony(notes: BarNotes) -> BarHarmony:
    """Return chords of all pitched tracks, recognised by beat; beats are counted from bar lines."""
    steps, chords = _chords(notes, np.ones(len(notes.keys), bool))
    per_quality = len(QUALITIES)
    roots = np.where(chords < 0, NO_CHORD, chords // per_quality)
    lengths = np.diff(np.append(steps, notes.lines[-1]))
    bars = np.searchsorted(notes.lines, steps, side="right") - 1
    changed = np.append(True, chords[1:] != chords[:-1])[: len(chords)]
    return BarHarmony(
        _longest(roots, bars, lengths, 12, notes.num_bars),
        _longest(chords, bars, lengths, 12 * per_quality, notes.num_bars),
        steps[changed],
        roots[changed],
    )


def harmony(notes: BarNotes, first_bar: int) -> dict[str, float]:
    """Return the measures of the chords of the new bars; bars without chord are left out.

    `roots_over_chance_4` and so on: `root_agreement` of new bars with the bar that far before, of
    the prompt or new. `harmonic_period`: 1 if that among the new bars alone is at least
    `LEAST_PERIOD` at one of the distances, else 0. `longest_chord`: longest run of bars with one
    chord (root and quality); `static_chord`: 1 if it has `STATIC_BARS` bars, else 0.
    `falling_fifths`: share of the changes of root that fall a fifth or rise a fourth.
    """
    spans = bar_harmony(notes)
    chords = spans.chords[first_bar:]
    longest = longest_run((chords[1:] == chords[:-1]) & (chords[1:] >= 0)) + 1
    has_chords = (chords >= 0).any()
    start = notes.lines[min(first_bar, notes.num_bars)]
    spoken = spans.changes >= 0
    roots, beginnings = spans.changes[spoken], spans.beginnings[spoken]
    moves = np.diff(roots)[beginnings[1:] >= start] % 12
    moves = moves[moves > 0]
    return {
        **{f"roots_over_chance_{k}": root_agreement(spans.roots, k, first_bar) for k in ROOT_LAGS},
        "harmonic_period": has_period(spans.roots[first_bar:]),
        "longest_chord": float(longest) if has_chords else _NAN,
        "static_chord": float(longest >= STATIC_BARS) if has_chords else _NAN,
        "falling_fifths": _mean(moves == 5),
    }


def has_period(roots: NDArray[np.int64]) -> float:
    """Return 1 if bars' roots (bars,) come back at one of `ROOT_LAGS`, else 0; NaN if none can."""
    agreement = [root_agreement(roots, lag) for lag in ROOT_LAGS]
    if not np.isfinite(agreement).any():
        return _NAN
    return float(np.nanmax(agreement) >= LEAST_PERIOD)


def root_agreement(roots: NDArray[np.int64], lag: int, first_bar: int = 0) -> float:
    """Return the share of bars from `first_bar` on with the root `lag` bars before, less chance.

    `roots` (bars,) has -1 for bars without chord, which are left out. Chance is the probability
    that two different ones of the compared bars, earlier and later, have one root, so that roots in
    random order give 0 in the mean. -1 to 1; NaN if no bars are compared.
    """
    later = np.arange(max(first_bar, lag), len(roots))
    pairs = np.stack([roots[later], roots[later - lag]])
    pairs = pairs[:, (pairs >= 0).all(0)]
    if not pairs.size:
        return _NAN
    compared = np.unique(np.concatenate([later, later - lag]))
    counts = np.bincount(roots[compared][roots[compared] >= 0])
    total = counts.sum()
    chance = (counts * (counts - 1)).sum() / (total * (total - 1))
    return float((pairs[0] == pairs[1]).mean() - chance)


def bass_fits(notes: BarNotes, first_bar: int) -> float:
    """Return the share of half bars whose bass belongs to the chord of the other pitched tracks.

    The bass is the track of a bass instrument, or else the one with the lowest mean pitch; its
    lowest note that sounds in the first beat of the half bar counts. The chord is that of the other
    tracks in the same beat. Half bars without bass or chord are left out; NaN with a single pitched
    track.
    """
    pitched = [i for i, key in enumerate(notes.keys) if key.program != DRUMS]
    pitched = [track for track in pitched if (notes.tracks == track).any()]
    if len(pitched) < 2:
        return _NAN
    basses = [track for track in pitched if notes.keys[track].program in _BASS_PROGRAMS]
    means = {t: notes.pitches[notes.tracks == t].mean() for t in basses or pitched}
    bass = min(means, key=means.__getitem__)
    steps, chords = _chords(notes, np.arange(len(notes.keys)) != bass)
    halves = _half_bars(notes, first_bar)
    if not len(steps) or not len(halves):
        return _NAN
    sounding = chords[np.searchsorted(steps, halves, side="right") - 1]
    in_bass = notes.tracks == bass
    begins, ends = notes.onsets[in_bass], (notes.onsets + notes.durations)[in_bass]
    sounds = (begins < halves[:, None] + STEPS_PER_BEAT) & (ends > halves[:, None])
    pitches = np.where(sounds, notes.pitches[in_bass], 128).min(1)
    has_both = (pitches < 128) & (sounding >= 0)
    root, quality = np.divmod(sounding[has_both], len(QUALITIES))
    return _mean(_IN_CHORD[quality, (pitches[has_both] - root) % 12])


def clashes(notes: BarNotes, first_bar: int) -> float:
    """Return the share of semitones among pairs of pitched notes that sound together; NaN without.

    At each onset of a new note it is paired with the notes that sound or begin there. A semitone
    is a minor second or one with octaves between (minor ninth), not a major seventh.
    """
    pitched = ~notes.is_drum
    onsets, pitches = notes.onsets[pitched], notes.pitches[pitched]
    ends = onsets + notes.durations[pitched]
    new = notes.bars[pitched] >= first_bar
    times, place = np.unique(onsets[new], return_inverse=True)
    begin = np.zeros((128, len(times)), np.int32)
    np.add.at(begin, (pitches[new], place), 1)
    change = np.zeros((128, len(times) + 1), np.int32)
    # notes that began before each time and end after it
    begun = np.searchsorted(times, onsets, side="right")
    over = np.searchsorted(times, ends)
    lasting = over > begun
    np.add.at(change, (pitches[lasting], begun[lasting]), 1)
    np.add.at(change, (pitches[lasting], over[lasting]), -1)
    held = change.cumsum(1)[:, :-1]
    number, holding = begin.sum(0), held.sum(0)
    pairs = int((number * (number - 1) // 2 + number * holding).sum())
    apart = range(1, 128, 12)
    num_clashes = sum(
        int(
            (begin[:-d] * begin[d:]).sum()
            + (begin[:-d] * held[d:]).sum()
            + (held[:-d] * begin[d:]).sum()
        )
        for d in apart
    )
    return num_clashes / pairs if pairs else _NAN


def fills(notes: BarNotes, first_bar: int) -> float:
    """Return the change of drums in each fourth bar less that in others; NaN without drums.

    The change of a bar is 1 less the Jaccard index of its drums and those of the bar before. Bars
    are counted from the start of the passage: the fourth, eighth and so on end a phrase. The bar
    after each of these is left out: it differs from a fill as much as the fill from the bar before.
    """
    drums = notes.only(notes.is_drum)
    change = 1 - np.diagonal(exact_similarity(drums), 1)
    bars = np.arange(1, drums.num_bars)
    is_new = (bars >= first_bar) & ~np.isnan(change)
    in_phrase = bars % _PHRASE_BARS
    last, middle = in_phrase == _PHRASE_BARS - 1, (in_phrase > 0) & (in_phrase < _PHRASE_BARS - 1)
    return _mean(change[is_new & last]) - _mean(change[is_new & middle])


def melody_of(notes: BarNotes, first_bar: int) -> BarNotes:
    """Return the melody of the new bars: the highest notes of the highest pitched track.

    That track is the one with the highest mean pitch of new notes. A note is part of the melody if
    no higher note begins with it or sounds when it begins, and if it is not more than an octave
    below the median of such notes: where the melody rests, the accompaniment does not take over.
    """
    new = notes.only(~notes.is_drum & (notes.bars >= first_bar))
    if not len(new.onsets):
        return new
    counts = np.bincount(new.tracks)
    means = np.bincount(new.tracks, new.pitches) / np.maximum(counts, 1)
    top = new.only(new.tracks == np.where(counts > 0, means, -1.0).argmax())
    ends = top.onsets + top.durations
    # notes are sorted by onset, then pitch: the last of each onset is the highest
    highest = np.append(top.onsets[1:] != top.onsets[:-1], True)
    covered = np.zeros(len(highest), bool)
    for back in range(1, min(len(highest), _LOOK_BACK)):
        above = (ends[:-back] > top.onsets[back:]) & (top.pitches[:-back] > top.pitches[back:])
        covered[back:] |= above
    line = top.only(highest & ~covered)
    return line.only(line.pitches >= np.median(line.pitches) - 12)


def melody_breaths(melody: BarNotes, num_bars: int) -> float:
    """Return the rests of at least an eighth between melody notes, per bar; NaN without notes."""
    if not len(melody.onsets):
        return _NAN
    ends = np.maximum.accumulate(melody.onsets + melody.durations)
    return float(np.count_nonzero(melody.onsets[1:] - ends[:-1] >= _EIGHTH) / num_bars)


def density_drift(notes: BarNotes, first_bar: int) -> float:
    """Return log2 of notes per bar in the last quarter of the new bars over the first quarter.

    NaN with fewer than four new bars, or where one of the quarters has no notes.
    """
    per_bar = np.bincount(notes.bars, minlength=notes.num_bars)[first_bar:]
    size = len(per_bar) // 4
    if not size:
        return _NAN
    first, last = per_bar[:size].sum(), per_bar[-size:].sum()
    return float(np.log2(last / first)) if first and last else _NAN


def _in_chord() -> NDArray[np.bool_]:
    """Return which intervals above the root belong to each chord (qualities, 12)."""
    table = np.zeros((len(QUALITIES), 12), bool)
    for row, intervals in zip(table, CHORD_INTERVALS, strict=True):
        row[list(intervals)] = True
    return table


_IN_CHORD = _in_chord()


def _mean(values: object) -> float:
    """Return the mean; NaN without values."""
    array = np.asarray(values, np.float64)
    return float(array.mean()) if array.size else _NAN


def _beats(notes: BarNotes) -> NDArray[np.int64]:
    """Return the grid steps of the beats: quarters counted from each bar line."""
    lines = notes.lines.tolist()
    beats = [beat for a, b in pairwise(lines) for beat in range(a, b, STEPS_PER_BEAT)]
    return np.array(beats, np.int64)


def _half_bars(notes: BarNotes, first_bar: int) -> NDArray[np.int64]:
    """Return grid steps where halves of the new bars begin; the first has the odd beat."""
    begins = notes.lines[first_bar:-1]
    beats = -(-np.diff(notes.lines[first_bar:]) // STEPS_PER_BEAT)
    middles = begins + (beats + 1) // 2 * STEPS_PER_BEAT
    return np.sort(np.append(begins, middles[beats > 1]))


def _chords(
    notes: BarNotes, tracks: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return beats in grid steps, and the index of these tracks' chord in each (beats,)."""
    steps = _beats(notes)
    heard = notes.only(tracks[notes.tracks] & ~notes.is_drum)
    if not len(steps) or not len(heard.onsets):
        return steps, np.full(len(steps), NO_CHORD)
    columns = (heard.onsets, heard.durations, heard.pitches, heard.velocities)
    score = Score(STEPS_PER_BEAT, (Track(np.stack(columns, 1)),), end_ticks=int(notes.lines[-1]))
    return steps, recognise_chords(score, steps / STEPS_PER_BEAT).at(steps / STEPS_PER_BEAT)


def _longest(
    values: NDArray[np.int64],
    bars: NDArray[np.int64],
    lengths: NDArray[np.int64],
    kinds: int,
    num_bars: int,
) -> NDArray[np.int64]:
    """Return the value of the largest total length in each bar (bars,), the smaller of equal ones.

    Values of -1 do not count; -1 for bars that have no other.
    """
    is_valid = values >= 0
    totals = np.bincount(
        bars[is_valid] * kinds + values[is_valid], lengths[is_valid], num_bars * kinds
    ).reshape(num_bars, kinds)
    return np.where(totals.any(1), totals.argmax(1), NO_CHORD)
