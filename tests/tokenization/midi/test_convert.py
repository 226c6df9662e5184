from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings

from tests.support.midi_files import scores
from tokenization.midi import convert

if TYPE_CHECKING:
    from collections.abc import Callable

    from tokenization.score import Score

LIBRARIES = {
    "symusic": (convert.to_symusic, convert.from_symusic),
    "miditoolkit": (convert.to_miditoolkit, convert.from_miditoolkit),
    "pretty_midi": (convert.to_pretty_midi, convert.from_pretty_midi),
    "muspy": (convert.to_muspy, convert.from_muspy),
}


def notes_with_programs(score: Score) -> list[tuple[object, ...]]:
    """Every note with its instrument."""
    return sorted(
        (track.is_drum, track.program, *row)
        for track in score.tracks
        for row in track.notes.tolist()
    )


@pytest.mark.parametrize("library", LIBRARIES)
@given(score=scores(shortest=1))
@settings(max_examples=10)
def test_scores_survive_conversion_and_back(library: str, score: Score) -> None:
    there: Callable[[Score], Any]
    back: Callable[[Any], Score]
    there, back = LIBRARIES[library]
    again = back(there(score))
    assert again.ticks_per_beat == score.ticks_per_beat
    assert notes_with_programs(again) == notes_with_programs(score)
