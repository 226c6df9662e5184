from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from app.compose.continuation import Progress, Result, continue_prompt, generate_piece
from app.compose.models import MusicModel
from app.compose.options import MusicOptions
from app.compose.prompt import read_prompt
from tests.support.scores import two_hands
from tokenization.grid import bar_lines
from tokenization.midi import read_midi, write_midi
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


@pytest.mark.parametrize("metre", [(4, 4), (3, 4), (6, 8), (5, 4)])
def test_a_continuation_has_the_bars_asked_for_in_tempo_and_metre(
    small_model: MusicModel, metre: tuple[int, int]
) -> None:
    upload = two_hands(metre=metre)
    data = write_midi(upload)
    result = run(small_model, data, bars=3, seed=1)
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


def test_two_hands_continue_in_two_tracks(small_model: MusicModel, prompt_bytes: bytes) -> None:
    (piece,) = run(small_model, prompt_bytes, bars=4, seed=1).pieces
    right, left = (track.notes[track.notes[:, 0] >= 4 * 1920, 2] for track in piece.score.tracks)
    assert len(right)
    assert len(left)
    assert right.min() >= left.max()


def test_same_seed_same_bytes_and_variations_differ(
    small_model: MusicModel, prompt_bytes: bytes
) -> None:
    first = run(small_model, prompt_bytes, bars=2, seed=5, variations=3)
    again = run(small_model, prompt_bytes, bars=2, seed=5, variations=3)
    assert [piece.midi for piece in first.pieces] == [piece.midi for piece in again.pieces]
    assert len({piece.midi for piece in first.pieces}) == 3
    assert [piece.seed for piece in first.pieces] == [5, 6, 7]


def test_the_new_music_alone_starts_at_its_first_bar(
    small_model: MusicModel, prompt_bytes: bytes
) -> None:
    (piece,) = run(small_model, prompt_bytes, bars=2, seed=1).pieces
    alone = read_midi(piece.new_midi)
    assert alone.tempos[0].bpm == pytest.approx(96)
    assert alone.num_notes == piece.notes == sum(len(track) for track in piece.new.tracks)
    assert alone.end_ticks <= 2 * 4 * alone.ticks_per_beat


def test_prompt_bars_limits_what_is_read_and_not_what_is_kept(
    small_model: MusicModel, prompt_bytes: bytes
) -> None:
    all_heard = run(small_model, prompt_bytes, bars=2, seed=1)
    some = run(small_model, prompt_bytes, bars=2, seed=1, prompt_bars=2)
    more = run(small_model, prompt_bytes, bars=2, seed=1, prompt_bars=99)
    assert some.prompt_notes == all_heard.prompt_notes // 2
    assert more.pieces[0].midi == all_heard.pieces[0].midi
    assert read_midi(some.pieces[0].midi).num_notes == two_hands().num_notes + some.pieces[0].notes


def test_stop_keeps_what_has_been_generated(small_model: MusicModel, prompt_bytes: bytes) -> None:
    calls = iter(range(1000))
    steps = continue_prompt(
        small_model,
        read_prompt(prompt_bytes),
        MusicOptions(bars=50, seed=1),
        lambda: next(calls) > 30,
    )
    _, result = finish(steps)
    assert 20 < result.tokens < 60
    assert read_midi(result.pieces[0].midi).num_notes >= two_hands().num_notes


def test_a_piece_that_was_stopped_has_the_bars_that_were_begun(quick_model: MusicModel) -> None:
    _, whole = finish(generate_piece(quick_model, MusicOptions(bars=8, seed=1)))
    assert (whole.pieces[0].bars, whole.pieces[0].stopped) == (8, False)
    steps = itertools.count()
    stopped = generate_piece(
        quick_model, MusicOptions(bars=8, seed=1), lambda: next(steps) > whole.tokens // 3
    )
    _, result = finish(stopped)
    (piece,) = result.pieces
    assert piece.stopped
    assert 1 <= piece.bars < 8
    assert piece.notes


def test_stop_keeps_all_that_was_shown(small_model: MusicModel, prompt_bytes: bytes) -> None:
    calls = iter(range(1000))
    steps = continue_prompt(
        small_model,
        read_prompt(prompt_bytes),
        MusicOptions(bars=50, seed=1, variations=3),
        lambda: next(calls) > 150,
    )
    progress, result = finish(steps)
    shown = [score.num_notes for score in progress[-1].scores]
    assert [piece.notes for piece in result.pieces] == shown
    assert min(shown) > 5


def test_a_note_that_rings_into_the_new_music_is_not_struck_before_its_end(
    small_model: MusicModel,
) -> None:
    upload = two_hands()
    ringing = [(3 * 1920 + 960, 960 + 200, pitch, 80) for pitch in range(40, 90)]
    data = write_midi(Score(480, (Track.of(ringing),), upload.tempos, upload.time_signatures))
    prompt = read_prompt(data)
    assert prompt.splice_ticks == 4 * 1920
    for seed in range(4):
        options = MusicOptions(bars=1, seed=seed)
        (piece,) = finish(continue_prompt(small_model, prompt, options))[1].pieces
        struck = piece.new.tracks[0].notes
        early = struck[(struck[:, 0] < 4 * 1920 + 200) & (struck[:, 2] >= 40) & (struck[:, 2] < 90)]
        assert not len(early)


def test_a_note_from_before_the_context_is_not_struck_before_its_end(
    small_model: MusicModel,
) -> None:
    """Its tokens are not in the context: only the file shows that it still sounds."""
    ringing = [(0, 4 * 1920 + 400, pitch, 80) for pitch in range(40, 90)]
    beats = [(480 * beat, 200, 100, 80) for beat in range(16)]
    prompt = read_prompt(write_midi(Score(480, (Track.of(ringing + beats),), (Tempo(0, 96.0),))))
    assert prompt.splice_ticks == 4 * 1920
    for seed in range(4):
        options = MusicOptions(bars=1, seed=seed, prompt_bars=1)
        (piece,) = finish(continue_prompt(small_model, prompt, options))[1].pieces
        struck = piece.new.tracks[0].notes
        early = struck[(struck[:, 0] < 4 * 1920 + 400) & (struck[:, 2] >= 40) & (struck[:, 2] < 90)]
        assert not len(early)


def test_a_continuation_without_new_notes_plays_as_its_prompt(
    small_model: MusicModel, prompt_bytes: bytes
) -> None:
    steps = continue_prompt(
        small_model, read_prompt(prompt_bytes), MusicOptions(bars=2, seed=1), lambda: True
    )
    (piece,) = finish(steps)[1].pieces
    assert piece.notes == piece.new.num_notes == 0
    assert piece.score.num_notes == two_hands().num_notes
    assert piece.score.tempos == read_midi(prompt_bytes).tempos


def test_progress_grows_to_the_result(
    small_model: MusicModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.compose.continuation.SECONDS_BETWEEN_REPORTS", 0.0)
    progress, result = finish(
        generate_piece(small_model, MusicOptions(bars=3, seed=2, variations=2))
    )
    assert len(progress) > 5
    tokens = [step.tokens for step in progress]
    assert tokens == sorted(tokens)
    assert tokens[-1] == result.tokens
    assert progress[-1].bars_done == result.bars == 3
    assert len(progress[-1].scores) == 2


def test_a_piece_from_nothing_has_tempo_metre_and_length(small_model: MusicModel) -> None:
    _, result = finish(generate_piece(small_model, MusicOptions(bars=4, seed=3)))
    (piece,) = result.pieces
    assert result.bars == 4
    assert piece.new.tempos[0].tick == piece.new.time_signatures[0].tick == 0
    lines = bar_lines(piece.new.time_signatures, piece.new.end_ticks)
    assert len(lines) == 4 + 1
    assert lines[-1] == piece.new.end_ticks
    assert piece.new.tracks[0].end_ticks <= piece.new.end_ticks
    assert piece.score.num_notes == piece.notes > 0


def test_last_bar_is_where_the_new_music_begins(
    small_model: MusicModel, prompt_bytes: bytes
) -> None:
    prompt = read_prompt(prompt_bytes, last_bar=2)
    assert prompt.splice_ticks == 2 * 1920
    result = finish(continue_prompt(small_model, prompt, MusicOptions(bars=1, seed=1)))[1]
    whole = result.pieces[0].score
    assert whole.end_ticks <= 3 * 1920  # the rest of the upload was cut off
    for track, before in zip(whole.tracks, two_hands().tracks, strict=True):
        kept = before.notes[before.notes[:, 0] < 2 * 1920]
        assert np.array_equal(track.notes[track.notes[:, 0] < 2 * 1920], kept)


@pytest.mark.parametrize(
    ("option", "value"),
    [("bars", 0), ("seed", -1), ("temperature", -0.1), ("top_p", 1.5), ("variations", 0)],
)
def test_options_out_of_range_are_refused(option: str, value: float) -> None:
    with pytest.raises(ValueError, match=option.replace("_", " ")):
        MusicOptions(**{option: value})  # type: ignore[arg-type]
