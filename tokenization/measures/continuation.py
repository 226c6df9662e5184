"""Measures that tell generated continuations from real ones: the input of the choice of a take.

They describe how new music goes on from its prompt: how similar its bars are to earlier ones, in
notes, rhythm and melody; its harmony; its melody; its density. Likelihood is not among them, so
that a model does not judge itself.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tokenization.analysis.chords import CHORD_INTERVALS, QUALITIES
from tokenization.analysis.keys import SCALES
from tokenization.grid import STEPS_PER_BEAT
from tokenization.measures.bars import BarNotes
from tokenization.measures.form import (
    ROOT_LAGS,
    bar_harmony,
    bass_fits,
    clashes,
    exact_similarity,
    fills,
    has_period,
    melody_breaths,
    melody_of,
    root_agreement,
)
from tokenization.measures.similarity import LAGS, bar_similarity, longest_run, rhythm_similarity
from tokenization.score import Score

_SAME = 0.999
"""Similarity from which two bars are equal."""
_LEAP, _STEP = 8, 2
_NAN = float("nan")
_MAJOR = np.array([np.roll(np.isin(np.arange(12), SCALES["major"]), tonic) for tonic in range(12)])
"""(12, 12): which pitch classes belong to each major scale."""


def measure_continuation(score: Score, first_bar: int, stop_bar: int) -> dict[str, float]:
    """Measure the bars from `first_bar` up to but not including `stop_bar`, by name.

    `score` has the prompt, the bars before `first_bar`, and the continuation. NaN where a measure
    is undefined, such as all comparisons if there is no prompt.
    """
    notes = BarNotes.of(score).padded(stop_bar).between(0, stop_bar)
    return (
        _similarity(notes, first_bar)
        | _harmony(notes, first_bar)
        | _tonality(notes, first_bar)
        | _melody(notes, first_bar)
        | _density(notes, first_bar)
        | {
            "clashes": clashes(notes, first_bar),
            "bass_fits": bass_fits(notes, first_bar),
            "fills": fills(notes, first_bar),
        }
    )


def _similarity(notes: BarNotes, first: int) -> dict[str, float]:
    """Return similarity to earlier bars at some distances, and to the most similar; equal bars."""
    melody, new = melody_of(notes, 0), np.arange(first, notes.num_bars)
    exact = exact_similarity(notes)
    measures: dict[str, float] = {}
    for name, similarity in {
        "notes": exact,
        "classes": bar_similarity(notes),
        "rhythm": rhythm_similarity(notes),
        "melody": bar_similarity(melody),
        "melody_rhythm": rhythm_similarity(melody),
    }.items():
        measures |= {f"{name}_{lag}": _at_lag(similarity, lag, first) for lag in LAGS}
        filled = np.nan_to_num(similarity)
        measures[f"{name}_most"] = _mean([filled[bar, :bar].max() for bar in new if bar])
    is_equal = np.tril(np.nan_to_num(exact) >= _SAME, -1)[first:]
    repeats = np.asarray(is_equal.any(1))
    return measures | {
        "equal": _mean(repeats),
        "equal_to_prompt": _mean(is_equal[:, :first].any(1)),
        "equal_1": _mean(is_equal[new >= 1, new[new >= 1] - 1]),
        "equal_8": _mean(is_equal[new >= 8, new[new >= 8] - 8]),
        "equal_run": longest_run(repeats) / max(len(repeats), 1),
    }


def _harmony(notes: BarNotes, first: int) -> dict[str, float]:
    """Return the chords by bar: their period, variety, changes, and whether the prompt has them."""
    harmony = bar_harmony(notes)
    roots, chords = harmony.roots, harmony.chords[first:]
    is_known = chords >= 0
    is_new = harmony.beginnings >= notes.lines[min(first, notes.num_bars)]
    spoken = harmony.changes >= 0
    moves = np.diff(harmony.changes[spoken])[is_new[spoken][1:]] % 12
    runs = longest_run((chords[1:] == chords[:-1]) & is_known[1:]) + 1
    return {
        **{f"roots_{lag}": root_agreement(roots, lag, first) for lag in ROOT_LAGS},
        **{f"new_roots_{lag}": root_agreement(roots[first:], lag) for lag in ROOT_LAGS[:2]},
        "harmonic_period": has_period(roots[first:]),
        "longest_chord": float(runs) if is_known.any() else _NAN,
        "falling_fifths": _mean(moves[moves > 0] == 5),
        "chord_kinds": len(np.unique(chords[is_known])) / max(is_known.sum(), 1) ** 0.5,
        "chord_changes": is_new.sum() / max(len(chords), 1),
        "no_chord": 1 - _mean(is_known),
        "chords_of_prompt": _mean(np.isin(chords[is_known], harmony.chords[:first]))
        if first
        else _NAN,
        "root_in_bass": _root_in_bass(notes, first, roots),
        "diatonic": _diatonic(notes, chords[is_known]),
    }


def _root_in_bass(notes: BarNotes, first: int, roots: NDArray[np.int64]) -> float:
    """Return the share of beats of new bars at which the lowest note is the root of the chord."""
    pitched = notes.only(~notes.is_drum)
    ends = pitched.onsets + pitched.durations
    begins = [
        (beat, roots[bar])
        for bar, (low, high) in enumerate(pairwise(notes.lines.tolist()))
        if bar >= first and roots[bar] >= 0
        for beat in range(low, high, STEPS_PER_BEAT)
    ]
    if not begins or not len(ends):
        return _NAN
    beats, expected = np.array(begins).T
    sounds = (pitched.onsets <= beats[:, None]) & (ends > beats[:, None])
    lowest = np.where(sounds, pitched.pitches, 128).min(1)
    return _mean(lowest[lowest < 128] % 12 == expected[lowest < 128])


def _diatonic(notes: BarNotes, chords: NDArray[np.int64]) -> float:
    """Return the share of chords with all notes in the major scale that fits the music best."""
    scale = _MAJOR[(_MAJOR @ _weights(notes)).argmax()]
    pairs = [divmod(int(chord), len(QUALITIES)) for chord in chords]
    return _mean(
        [
            all(scale[(root + interval) % 12] for interval in CHORD_INTERVALS[quality])
            for root, quality in pairs
        ]
    )


def _tonality(notes: BarNotes, first: int) -> dict[str, float]:
    """Return shares of the time of new notes in a scale: their own best one, and the prompt's."""
    begins = notes.bars
    new, prompt = _weights(notes.only(begins >= first)), _weights(notes.only(begins < first))
    measures = {"in_scale": _share((_MAJOR @ new).max(), new.sum())}
    if not prompt.any():
        return measures | {"in_prompt_scale": _NAN, "worst_bars": _NAN}
    outside = ~_MAJOR[(_MAJOR @ prompt).argmax()]
    chroma = np.array([_weights(notes.only(begins == bar)) for bar in range(first, notes.num_bars)])
    pairs = chroma[:-1] + chroma[1:] if len(chroma) > 1 else chroma
    sums = pairs.sum(1)
    strange = pairs[:, outside].sum(1)[sums > 0] / sums[sums > 0]
    return measures | {
        "in_prompt_scale": 1 - _share(new[outside].sum(), new.sum()),
        "worst_bars": float(strange.max(initial=0)),
    }


def _melody(notes: BarNotes, first: int) -> dict[str, float]:
    """Return the melody: its range, density, steps, leaps, rests, lengths; less the prompt's."""
    new = _line(melody_of(notes, first), notes.num_bars - first)
    before = _line(melody_of(notes.between(0, first), 0), first) if first else {}
    differences = {
        f"{name}_less_prompt": value - before.get(name, _NAN) for name, value in new.items()
    }
    return new | differences


def _line(melody: BarNotes, bars: int) -> dict[str, float]:
    intervals = np.abs(np.diff(melody.pitches))
    some = len(melody.pitches) > 0
    return {
        "melody_range": float(np.ptp(np.percentile(melody.pitches, (5, 95)))) if some else _NAN,
        "melody_density": len(melody.pitches) / max(bars, 1),
        "melody_steps": _mean(intervals <= _STEP),
        "melody_leaps": _mean(intervals >= _LEAP),
        "melody_repeats": _mean(intervals == 0),
        "melody_breaths": melody_breaths(melody, bars),
        "melody_lengths": _mean(np.log2(melody.durations)),
        "melody_on_beat": _mean(melody.positions % STEPS_PER_BEAT == 0),
    }


def _density(notes: BarNotes, first: int) -> dict[str, float]:
    """Return the notes per bar against the prompt, their variation and that of durations."""
    counts = np.bincount(notes.bars, minlength=notes.num_bars).astype(np.float64)
    before, new = counts[:first], counts[first:]
    quarter = max(len(new) // 4, 1)
    lengths, is_new = np.log2(notes.durations), notes.bars >= first
    has_both = 0 < is_new.sum() < len(is_new)
    return {
        "density": np.log(new.mean() + 1) - np.log(before.mean() + 1) if first else _NAN,
        "density_deviation": new.std() / max(new.mean(), 1),
        "density_deviation_less_prompt": new.std() / max(new.mean(), 1)
        - (before.std() / max(before.mean(), 1) if first else _NAN),
        "density_drift": np.log(new[-quarter:].mean() + 1) - np.log(new[:quarter].mean() + 1),
        "empty_bars": _mean(new == 0),
        "length_deviation_less_prompt": lengths[is_new].std() - lengths[~is_new].std()
        if has_both
        else _NAN,
    }


def _at_lag(similarity: NDArray[np.float64], lag: int, first: int) -> float:
    """Return the mean similarity of bars from `first` on to the bar `lag` before; NaN without."""
    bars = np.arange(max(first, lag), len(similarity))
    values = similarity[bars, bars - lag]
    return _mean(values[~np.isnan(values)])


def _weights(notes: BarNotes) -> NDArray[np.float64]:
    """Return the grid steps of each pitch class (12,); a note counts a whole note at most."""
    pitched = ~notes.is_drum
    lengths = np.minimum(notes.durations[pitched], 4 * STEPS_PER_BEAT)
    return np.bincount(notes.pitches[pitched] % 12, lengths, 12).astype(np.float64)


def _share(part: float, whole: float) -> float:
    return float(part / whole) if whole else _NAN


def _mean(values: object) -> float:
    """Return the mean; NaN without values."""
    array = np.asarray(values, np.float64)
    return float(array.mean()) if array.size else _NAN
