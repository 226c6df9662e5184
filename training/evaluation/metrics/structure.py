"""Distribution and structure of music: histograms, rates, repetition and faults.

All measures take the notes of some bars of a score, `BarNotes.of(score).between(first, stop)`. They
apply to generated and to real music, so that held-out pieces give reference values. Measures that
compare new music with its prompt take the bars of both, and the index of the first new bar.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenization.grid import MAX_BAR_STEPS, STEPS_PER_BEAT
from tokenization.measures.bars import BarNotes, TrackKey
from tokenization.measures.similarity import (
    LAGS,
    bar_similarity,
    repeated_bars,
    similarity_by_lag,
)
from tokenization.remi.vocabulary import NUM_VELOCITIES, VELOCITY_STEP

MUSPY_MEASURES: tuple[str, ...] = (
    "pitch_range",
    "n_pitch_classes_used",
    "pitch_class_entropy",
    "scale_consistency",
    "polyphony",
    "polyphony_rate",
    "empty_beat_rate",
    "empty_measure_rate",
    "groove_consistency",
)
_MANY_NOTES = 128
_SCALES = ((0, 2, 4, 5, 7, 9, 11), (0, 2, 3, 5, 7, 8, 10))
"""Pitch classes of C major and C minor."""


def histograms(notes: BarNotes) -> dict[str, NDArray[np.int64]]:
    """Return histograms by name, int64; those of several passages can be added.

    Of all notes except drums: `pitch_class` (12,), and `duration` (97,) in twelfths of a beat from
    1, with durations above eight beats in the last bin. Of all notes: `onset_in_bar` (96,) in
    twelfths of a beat, and `velocity` (32,) in bins of four. `notes_per_bar` (129,): number of bars
    by their number of notes, with larger numbers in the last bin.
    """
    pitched = ~notes.is_drum
    durations = np.minimum(notes.durations[pitched], MAX_BAR_STEPS + 1) - 1
    per_bar = np.bincount(notes.bars, minlength=notes.num_bars)
    columns = {
        "pitch_class": (notes.pitches[pitched] % 12, 12),
        "duration": (durations, MAX_BAR_STEPS + 1),
        "onset_in_bar": (notes.positions, MAX_BAR_STEPS),
        "velocity": (notes.velocities // VELOCITY_STEP, NUM_VELOCITIES),
        "notes_per_bar": (np.minimum(per_bar, _MANY_NOTES), _MANY_NOTES + 1),
    }
    return {name: np.bincount(values, minlength=n) for name, (values, n) in columns.items()}


def pool(parts: Iterable[Mapping[str, NDArray[np.int64]]]) -> dict[str, NDArray[np.int64]]:
    """Return the sums of the histograms of several passages."""
    total: dict[str, NDArray[np.int64]] = {}
    for part in parts:
        for name, counts in part.items():
            total[name] = total[name] + counts if name in total else counts
    return total


def jensen_shannon(a: NDArray[np.int64], b: NDArray[np.int64]) -> float:
    """Return the Jensen-Shannon divergence of two histograms in bits, 0 (the same) to 1.

    NaN if one of them is empty. Unlike the overlap of densities, it needs no smoothing and allows
    empty bins. Two samples of n and m independent counts from the same source differ by about
    (bins - 1) / (8 ln 2) * (1/n + 1/m), so a model should be compared with held-out music of
    similar size. Source: Lin (1991).
    """
    if not a.sum() or not b.sum():
        return float("nan")
    p, q = a / a.sum(), b / b.sum()
    mean = (p + q) / 2
    # zeros add nothing
    parts = [(x[x > 0] * np.log2(x[x > 0] / mean[x > 0])).sum() / 2 for x in (p, q)]
    return float(min(max(sum(parts), 0.0), 1.0))


def muspy_measures(notes: BarNotes) -> dict[str, float]:
    """Return the measures of muspy (Dong et al., 2020), by the same names.

    They are NaN where muspy returns NaN.

    Times are in twelfths of a beat, on which the values depend, and start with the first bar. As in
    muspy, drums count only for `empty_beat_rate`, `empty_measure_rate` and `groove_consistency`;
    all rates end with the last note; a note that ends where a beat or bar begins also sounds in
    that beat or bar; and a bar that begins where the music ends is counted. Differences from muspy:

    - Bars follow the time signatures, while muspy has one bar length for the whole piece (the
      values are equal if the metre is constant). If two adjacent bars differ in length, the shorter
      one is compared as if silence followed.
    - If all notes are drums, `pitch_range` is 0 (muspy: -127) and `scale_consistency` is NaN. If
      there are no notes, values for which muspy raises an error are NaN.
    - Notes are cut at the end of the passage.
    """
    pitched = ~notes.is_drum
    pitches, onsets = notes.pitches, notes.onsets
    ends = np.minimum(onsets + notes.durations, notes.lines[-1])
    length = int(ends.max(initial=0))
    classes = np.bincount(pitches[pitched] % 12, minlength=12)
    measures = dict.fromkeys(MUSPY_MEASURES, float("nan"))
    measures["pitch_range"] = float(np.ptp(pitches[pitched])) if pitched.any() else 0.0
    measures["n_pitch_classes_used"] = float(np.count_nonzero(classes))
    if pitched.any():
        shares = classes[classes > 0] / classes.sum()
        measures["pitch_class_entropy"] = float(-(shares * np.log2(shares)).sum())
        in_scale = [
            classes[(np.array(scale) + root) % 12].sum() for scale in _SCALES for root in range(12)
        ]
        measures["scale_consistency"] = float(max(in_scale) / classes.sum())
    if not length:
        return measures
    sounding = _sounding_pitches(notes, ends, length)
    if sounding.any():
        measures["polyphony"] = float(sounding.sum() / np.count_nonzero(sounding))
    measures["polyphony_rate"] = float(np.count_nonzero(sounding > 2) / length)
    beats = np.arange(0, length + 1, STEPS_PER_BEAT)
    bars = notes.lines[notes.lines <= length]
    measures["empty_beat_rate"] = _empty_rate(beats, onsets, ends)
    measures["empty_measure_rate"] = _empty_rate(bars, onsets, ends)
    measures["groove_consistency"] = _groove_consistency(notes, bars)
    return measures


def _sounding_pitches(notes: BarNotes, ends: NDArray[np.int64], length: int) -> NDArray[np.int64]:
    """Count the different pitches that sound in each grid step (length,), without drums."""
    roll = np.zeros((128, length + 1), np.int64)
    pitched = ~notes.is_drum
    np.add.at(roll, (notes.pitches[pitched], notes.onsets[pitched]), 1)
    np.add.at(roll, (notes.pitches[pitched], ends[pitched]), -1)
    return (roll.cumsum(1)[:, :length] > 0).sum(0)


def _empty_rate(
    starts: NDArray[np.int64], onsets: NDArray[np.int64], ends: NDArray[np.int64]
) -> float:
    """Return the share of beats or bars with these `starts` (n,) in which no note sounds."""
    first = np.searchsorted(starts, onsets, side="right") - 1
    stop = np.searchsorted(starts, ends, side="right")
    size = len(starts) + 1
    change = np.bincount(first, minlength=size) - np.bincount(stop, minlength=size)
    return float(1 - (change.cumsum()[:-1] > 0).mean())


def _groove_consistency(notes: BarNotes, starts: NDArray[np.int64]) -> float:
    """Return one minus the share of positions where only one of two adjacent bars has an onset."""
    if len(starts) < 2:
        return float("nan")
    sizes = np.diff(notes.lines)
    # a bar that begins at the end of the passage has the length of the previous one
    sizes = np.append(sizes, sizes[-1])[: len(starts)]
    onsets = np.zeros((len(starts), sizes.max()), bool)
    onsets[notes.bars, notes.positions] = True
    positions = np.maximum(sizes[:-1], sizes[1:]).sum()
    return float(1 - np.count_nonzero(onsets[:-1] != onsets[1:]) / positions)


class StuckNotes(NamedTuple):
    """Numbers of notes that are too long, drums excluded."""

    notes: int
    """Number of new notes."""
    longer_than_bars: int
    """New notes longer than the given number of bars."""
    longer_than_prompt: int
    """New notes longer than every note of the prompt."""
    longer_than_both: int


def stuck_notes(notes: BarNotes, first_bar: int, bars: float = 2) -> StuckNotes:
    """Count new notes that are longer than `bars` bars, or than every note of the prompt.

    The bar length is that of the bar in which the note begins.
    """
    pitched = ~notes.is_drum
    bar, durations = notes.bars[pitched], notes.durations[pitched]
    new = bar >= first_bar
    allowed = bars * np.diff(notes.lines)[bar]
    longest = durations[~new].max(initial=0)
    return StuckNotes(
        int(new.sum()),
        int((new & (durations > allowed)).sum()),
        int((new & (durations > longest)).sum()),
        int((new & (durations > np.maximum(allowed, longest))).sum()),
    )


def playing_at_end(notes: BarNotes, first_bar: int, last_bars: int = 4) -> dict[TrackKey, bool]:
    """Return whether each track of the prompt has a new note that sounds in the last bars.

    These are the last `last_bars` bars, or all new bars if there are fewer.
    """
    last = min(max(first_bar, notes.num_bars - last_bars), notes.num_bars)
    late = (notes.bars >= first_bar) & (notes.onsets + notes.durations > notes.lines[last])
    at_end = set(notes.tracks[late].tolist())
    prompt = np.unique(notes.tracks[notes.bars < first_bar]).tolist()
    return {notes.keys[track]: track in at_end for track in prompt}


def structure(notes: BarNotes, first_bar: int) -> dict[str, float]:
    """Return all scalar measures of the bars from `first_bar` on, by name; NaN where undefined.

    - the measures of `muspy_measures`;
    - `similarity_lag_1` and so on: similarity of new bars to each other;
    - `bars_of_prompt` and `bars_of_any_earlier`: shares of new bars, see `RepeatedBars`;
    - `stuck_share` and `longer_than_prompt_share`: shares of new notes, see `StuckNotes`;
    - `still_playing`: share of the prompt's tracks, see `playing_at_end`;
    - `bars` and `notes`: numbers of new bars and notes.
    """
    new = notes.between(first_bar)
    nan = float("nan")
    measures = muspy_measures(new)
    by_lag = similarity_by_lag(bar_similarity(new))
    measures |= {f"similarity_lag_{lag}": float(x) for lag, x in zip(LAGS, by_lag, strict=True)}
    repeated = repeated_bars(notes, first_bar)
    stuck, playing = stuck_notes(notes, first_bar), playing_at_end(notes, first_bar)
    count = stuck.notes
    return measures | {
        "bars_of_prompt": repeated.of_prompt,
        "bars_of_any_earlier": repeated.of_any_earlier,
        "stuck_share": stuck.longer_than_bars / count if count else nan,
        "longer_than_prompt_share": stuck.longer_than_prompt / count if count else nan,
        "still_playing": sum(playing.values()) / len(playing) if playing else nan,
        "bars": float(new.num_bars),
        "notes": float(len(new.onsets)),
    }
