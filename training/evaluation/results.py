"""What a results.json holds, by its keys."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

Results = Mapping[str, Any]
"""Content of a results.json, or of a part of it."""


WHOLE = {
    "streaming": "whole pieces",
    "streaming_pointer": "whole pieces, with pointer",
    "streaming_without_plan": "whole pieces without their plans",
}
"""Label of each likelihood of whole pieces, by key of results.json."""

FIGURES = {
    "pitch_range": "pitch range, semitones",
    "n_pitch_classes_used": "pitch classes used, of 12",
    "pitch_class_entropy": "entropy of pitch classes, bits",
    "scale_consistency": "notes in the best-fitting scale, share (scale consistency)",
    "polyphony": "simultaneous pitches (polyphony)",
    "polyphony_rate": "time with 3 or more simultaneous pitches, share (polyphony rate)",
    "empty_beat_rate": "empty beats, share",
    "empty_measure_rate": "empty bars, share",
    "groove_consistency": "rhythm kept from bar to bar, share (groove consistency)",
    "bars_of_prompt": "bars equal to a prompt bar, share",
    "bars_of_any_earlier": "bars equal to any earlier bar, share",
    "stuck_share": "notes longer than 2 bars, share",
    "longer_than_prompt_share": "notes longer than every note of the prompt, share",
    "still_playing": "instruments of the prompt that play in the last 4 bars, share",
    "bars": "bars in these figures",
    "notes": "notes in these bars",
    "most_similar_earlier": "similarity to the most similar earlier bar, by track and pitch",
    "like_bar_before": "similarity to the bar before, by track and pitch",
    "harmonic_period": "those with a harmonic period of 4, 8 or 16 bars, share",
    "longest_chord": "longest run of bars with one chord",
    "static_chord": "those with one chord for 8 bars, share",
    "falling_fifths": "changes of root by a falling fifth, share",
    "bass_fits": "half bars in which the bass fits the other parts, share",
    "clashes": "semitones among notes that sound together, share",
    "fills": "change of the drums in every fourth bar over others",
    "melody_breaths": "rests of the melody per bar",
    "melody_range": "range of the melody, semitones",
    "velocity_deviation": "standard deviation of velocities",
    "density_drift": "notes per bar, last quarter over first, log2",
}
FIGURES |= {f"similarity_lag_{lag}": f"similarity of bars {lag} apart" for lag in (1, 2, 4, 8, 16)}
FIGURES |= {
    f"self_similarity_{lag}": f"similarity of new bars {lag} apart, by track and pitch"
    for lag in (1, 4, 8, 16)
}
FIGURES |= {
    f"roots_over_chance_{lag}": f"chord root of {lag} bars before, share over chance"
    for lag in (4, 8, 16)
}
"""Labels for musicians, by the name in results.json."""


def readings(results: Results) -> dict[str, Any]:
    """Return the likelihood of whole pieces and of windows, by key of results.json."""
    return {k: v for k, v in results.items() if k in WHOLE or k.startswith("windows_")}


def reading_label(key: str) -> str:
    """Return what was read, by key of results.json: "whole pieces" or "windows of 1,024 tokens"."""
    return WHOLE.get(key) or f"windows of {int(key.removeprefix('windows_')):,} tokens"


def music_key(prompt_bars: int, bars: int, takes: int = 1) -> str:
    """Return the results' key for continuations of `bars` bars after prompts of `prompt_bars` bars.

    `takes` is the number of takes of which each is the best.
    """
    return f"music_{prompt_bars}_{bars}" + (f"_takes_{takes}" if takes > 1 else "")


def is_music(key: str) -> bool:
    """Return whether this is a `music_key`."""
    return re.fullmatch(r"music_\d+_\d+(_takes_\d+)?", key) is not None


def music_by_key(results: Results) -> dict[str, Results]:
    """Return the measured music by `music_key`, shorter prompts first; empty if there is none."""
    music_of_key = {key: music for key, music in results.items() if is_music(key)}
    return dict(sorted(music_of_key.items(), key=lambda item: _size(item[1])))


def _size(music: Results) -> tuple[int, int, int]:
    """Return the bars of the prompt, new bars and takes."""
    protocol = music["protocol"]
    return protocol["prompt_bars"], protocol["bars"], protocol["takes"]


def music_keys(entries: Mapping[str, Results]) -> list[str]:
    """Return the keys of the measured music of some models, shorter prompts first."""
    sizes = {
        key: _size(music)
        for results in entries.values()
        for key, music in music_by_key(results).items()
    }
    return sorted(sizes, key=sizes.__getitem__)


def by_real_music(entries: Mapping[str, Results], key: str) -> list[tuple[str, list[str]]]:
    """Return the label of real music, and names of models compared with it, for a key of music.

    Models without such music are left out.
    """
    groups: dict[tuple[Any, ...], list[str]] = {}
    for name, results in entries.items():
        if music := music_by_key(results).get(key):
            same = (results["data"], results["split"], results["pieces"], results["tokens"])
            groups.setdefault((*same, *music["protocol"]["pieces"]), []).append(name)
    label = "real music" if len(groups) == 1 else "real music for {}"
    return [(label.format(", ".join(names)), names) for names in groups.values()]
