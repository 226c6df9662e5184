from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from app.compose.continuation import Progress, Result, continue_prompt, generate_piece
from app.compose.models import MusicModel
from app.compose.options import MusicOptions
from app.compose.prompt.prompt import read_prompt
from tests.support.bands import band, model_of
from tests.support.scores import two_hands
from tokenization.analysis.accidents import accidents
from tokenization.grid import bar_lines
from tokenization.midi import read_midi, write_midi
from tokenization.remi.multitrack import MultitrackRemi
from tokenization.score import Score, Tempo, Track

if TYPE_CHECKING:
    from app.compose.continuation import Steps


def finish(steps: Steps) -> tuple[list[Progress], Result]:
    *progress, result = list(steps)
    assert isinstance(result, Result)
    assert all(isinstance(step, Progress) for step in progress)
    return progress, result  # type: ignore[return-value]


def run(model: MusicModel, data: bytes, last_bar: int | None = None, **options: Any) -> Result:
    return finish(
        continue_prompt(model, read_prompt(data, last_bar=last_bar), MusicOptions(**options))
    )[1]


def test_a_continuation_has_the_bars_asked_for_in_tempo_and_metre(small_model):
    metre = (6, 8)
    upload = two_hands(metre=metre)
    result = run(small_model, write_midi(upload), bars=3, seed=1)
    (piece,) = result.pieces
    bar = 480 * 4 * metre[0] // metre[1]
    assert result.bars == 3
    whole = read_midi(piece.midi)
    assert whole.tempos == upload.tempos
    assert whole.time_signatures == upload.time_signatures
    onsets = np.concatenate([track.notes[:, 0] for track in piece.new.tracks])
    assert len(onsets)
    assert onsets.min() >= 4 * bar
    assert onsets.max() < 7 * bar
    assert whole.end_ticks <= 7 * bar
    # the notes of the upload are unchanged
    for before, after in zip(upload.tracks, whole.tracks, strict=True):
        assert np.array_equal(after.notes[after.notes[:, 0] < 4 * bar], before.notes)
    right, left = (track.notes[track.notes[:, 0] >= 4 * bar, 2] for track in whole.tracks)
    assert right.min() >= left.max()  # two hands continue in two tracks
    alone = read_midi(piece.new_midi)
    assert alone.tempos[0].bpm == pytest.approx(96)
    assert alone.num_notes == piece.notes == piece.new.num_notes
    assert alone.end_ticks <= 3 * bar * alone.ticks_per_beat // 480


def test_same_seed_same_bytes_and_variations_differ(quick_model, prompt_bytes):
    first = run(quick_model, prompt_bytes, bars=2, seed=5, variations=3, takes=1)
    again = run(quick_model, prompt_bytes, bars=2, seed=5, variations=3, takes=1)
    assert [piece.midi for piece in first.pieces] == [piece.midi for piece in again.pieces]
    assert len({piece.midi for piece in first.pieces}) == 3
    assert [piece.seed for piece in first.pieces] == [5, 6, 7]


def test_a_piece_tells_its_accidents_in_bars_of_the_file(quick_model):
    rows = [(960 * beat, 800, 60 + (beat * beat) % 11, 80) for beat in range(24)]
    prompt = write_midi(Score(480, (Track.of(rows),)))
    lines = set()
    for seed in range(4):
        (piece,) = run(quick_model, prompt, bars=8, seed=seed, prompt_bars=9, takes=1).pieces
        heard = piece.score.between(3 * 1920, 20 * 1920)
        assert piece.accidents == accidents(heard, 9, 17).line(bars_before=3)
        lines.add(piece.accidents)
    assert any(lines)
    # the likeliest notes are the same for every seed
    pieces = run(quick_model, prompt, bars=4, seed=1, variations=3, top_p=0.01).pieces
    same = [piece.accidents.rpartition("nearly the same as ")[2] for piece in pieces]
    assert same[1:] == ["variation 1", "variation 1"]
    assert "nearly" not in pieces[0].accidents
    # bars are left out that have only begun
    (piece,) = finish(
        continue_prompt(
            quick_model, read_prompt(prompt), MusicOptions(bars=8, takes=1), lambda: True
        )
    )[1].pieces
    assert piece.stopped
    assert not piece.accidents


def test_prompt_bars_limits_what_is_read_and_not_what_is_kept(quick_model, prompt_bytes):
    all_heard = run(quick_model, prompt_bytes, bars=2, seed=1)
    some = run(quick_model, prompt_bytes, bars=2, seed=1, prompt_bars=2)
    more = run(quick_model, prompt_bytes, bars=2, seed=1, prompt_bars=99)
    assert some.prompt_notes == all_heard.prompt_notes // 2
    assert more.pieces[0].midi == all_heard.pieces[0].midi
    assert read_midi(some.pieces[0].midi).num_notes == two_hands().num_notes + some.pieces[0].notes


def test_a_piece_that_was_stopped_has_the_bars_that_were_begun(quick_model):
    _, whole = finish(generate_piece(quick_model, MusicOptions(bars=8, seed=1, takes=1)))
    assert (whole.pieces[0].bars, whole.pieces[0].stopped) == (8, False)
    steps = itertools.count()
    stopped = generate_piece(
        quick_model, MusicOptions(bars=8, seed=1, takes=1), lambda: next(steps) > whole.tokens // 3
    )
    _, result = finish(stopped)
    (piece,) = result.pieces
    assert piece.stopped
    assert 1 <= piece.bars < 8
    assert piece.notes


def test_stop_keeps_all_that_was_shown(quick_model, prompt_bytes):
    calls = iter(range(1000))
    steps = continue_prompt(
        quick_model,
        read_prompt(prompt_bytes),
        MusicOptions(bars=50, seed=1, variations=3, takes=1),
        lambda: next(calls) > 150,
    )
    progress, result = finish(steps)
    assert 3 * 150 <= result.tokens <= 3 * 152
    shown = [score.num_notes for score in progress[-1].scores]
    assert [piece.notes for piece in result.pieces] == shown
    assert min(shown) > 5


def test_a_note_that_rings_into_the_new_music_is_not_struck_before_its_end(quick_model):
    """Also if its tokens are not in the context, and only the file shows that it still sounds."""
    ringing = [(0, 4 * 1920 + 400, pitch, 80) for pitch in range(40, 90)]
    beats = [(480 * beat, 200, 100, 80) for beat in range(16)]
    prompt = read_prompt(write_midi(Score(480, (Track.of(ringing + beats),), (Tempo(0, 96.0),))))
    assert prompt.splice_ticks == 4 * 1920
    for seed, prompt_bars in ((0, 0), (0, 1), (1, 1)):
        options = MusicOptions(bars=1, seed=seed, prompt_bars=prompt_bars)
        (piece,) = finish(continue_prompt(quick_model, prompt, options))[1].pieces
        struck = piece.new.tracks[0].notes
        early = struck[(struck[:, 0] < 4 * 1920 + 400) & (struck[:, 2] >= 40) & (struck[:, 2] < 90)]
        assert not len(early)


def notes_before(score: Score, tick: int) -> list[tuple[Any, ...]]:
    """Notes that begin before a tick, by instrument."""
    return sorted(
        (track.program, track.is_drum, *note[[0, 2, 3]].tolist())
        for track in score.tracks
        for note in track.notes
        if note[0] < tick
    )


@pytest.mark.parametrize("has_prompt", [True, False])
def test_progress_grows_to_the_result_and_finished_bars_do_not_change(has_prompt, monkeypatch):
    monkeypatch.setattr("app.compose.continuation.SECONDS_BETWEEN_REPORTS", 0.0)
    model = model_of(MultitrackRemi())
    options = MusicOptions(bars=5, seed=3, takes=1)
    prompt = read_prompt(write_midi(band()), tokenizer=model.tokenizer)
    steps = (
        continue_prompt(model, prompt, options) if has_prompt else generate_piece(model, options)
    )
    progress, result = finish(steps)
    for counts in ([step.done_ticks for step in progress], [step.tokens for step in progress]):
        assert counts == sorted(counts)
        assert len(set(counts)) >= 5
    assert progress[-1].tokens == result.tokens
    assert progress[-1].bars_done == result.bars == 5
    for step in progress[:: max(1, len(progress) // 40)]:
        assert notes_before(step.scores[0], step.done_ticks) == notes_before(
            result.pieces[0].new, step.done_ticks
        )


def test_a_piece_from_nothing_has_tempo_metre_and_length(quick_model):
    _, result = finish(
        generate_piece(quick_model, MusicOptions(bars=4, seed=3, takes=1, ending="bar"))
    )
    (piece,) = result.pieces
    assert result.bars == 4
    assert piece.new.tempos[0].tick == piece.new.time_signatures[0].tick == 0
    lines = bar_lines(piece.new.time_signatures, piece.new.end_ticks)
    assert len(lines) == 4 + 1
    assert lines[-1] == piece.new.end_ticks
    assert piece.new.tracks[0].end_ticks <= piece.new.end_ticks
    assert piece.score.num_notes == piece.notes > 0


def test_last_bar_is_where_the_new_music_begins(quick_model, prompt_bytes):
    result = run(quick_model, prompt_bytes, last_bar=2, bars=1, seed=1)
    whole = result.pieces[0].score
    assert whole.end_ticks <= 3 * 1920  # the rest of the upload was cut off
    for track, before in zip(whole.tracks, two_hands().tracks, strict=True):
        kept = before.notes[before.notes[:, 0] < 2 * 1920]
        assert np.array_equal(track.notes[track.notes[:, 0] < 2 * 1920], kept)
