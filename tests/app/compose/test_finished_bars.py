"""Bars that are reported as finished do not change any more."""

from __future__ import annotations

import pytest

from app.compose import continuation
from app.compose.continuation import Progress, Result, continue_prompt, generate_piece
from app.compose.options import MusicOptions
from app.compose.prompt import read_prompt
from tests.support.bands import band, model_of
from tokenization.midi import write_midi
from tokenization.remi.multitrack import MultitrackRemi
from tokenization.remi.remi import PianoRemi

MODELS = {
    "piano": model_of(PianoRemi()),
    "band": model_of(MultitrackRemi()),
}


def before(score, tick):
    """Notes that begin before a tick, by instrument."""
    rows = [
        (track.program, track.is_drum, *note[[0, 2, 3]].tolist())
        for track in score.tracks
        for note in track.notes
        if note[0] < tick
    ]
    return sorted(rows)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("has_prompt", [True, False])
def test_notes_before_done_ticks_are_those_of_the_result(name, has_prompt, monkeypatch):
    monkeypatch.setattr(continuation, "SECONDS_BETWEEN_REPORTS", 0.0)
    model, options = MODELS[name], MusicOptions(bars=5, seed=3)
    if has_prompt:
        score = band() if name == "band" else band().with_tracks(band().tracks[:1])
        prompt = read_prompt(write_midi(score), "band.mid", tokenizer=model.tokenizer)
        made = list(continue_prompt(model, prompt, options))
    else:
        made = list(generate_piece(model, options))
    steps, result = [step for step in made if isinstance(step, Progress)], made[-1]
    assert isinstance(result, Result)
    done = [step.done_ticks for step in steps]
    assert done == sorted(done)
    assert len(set(done)) >= 5
    for step in steps[:: max(1, len(steps) // 40)]:
        new = before(result.pieces[0].new, step.done_ticks)
        assert before(step.scores[0], step.done_ticks) == new
