"""Batches: a clip depends only on its prompt, model, options and seed, even after resuming."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from app.batch.run import BatchProgress, BatchResult, make_batch
from app.compose.continuation import Result, continue_prompt, finish, generate_piece
from app.compose.models import Models
from app.compose.prompt.prompt import read_prompt
from app.errors import CommandError
from tests.support.batches import MUSIC, after, contents, listed, options, run
from tests.support.scores import two_hands
from tokenization.errors import MidiError
from tokenization.midi import write_midi


def test_the_width_does_not_change_the_clips(quick_model, tmp_path, prompts):
    """The logits of a row do not depend on others: `tests/relpe/decoding`."""
    music = replace(MUSIC, bars=8, repetition=1.0, density=6.0, key="C", ending="cadence")
    clips = []
    for width in (1, 4, 32):
        asked = options(tmp_path / str(width), prompts, width=width, music=music)
        _, result = run(quick_model, asked)
        assert (result.made, result.kept, result.total) == (6, 0, 6)
        clips.append(contents(asked.output))
    assert clips[0] == clips[1] == clips[2]


def test_a_piece_that_cannot_be_saved_is_reported_and_the_others_are_made(
    quick_model, tmp_path, monkeypatch
):
    def refused(draft):
        if draft.seed == 6:
            raise MidiError("no file can say that")
        return finish(draft)

    monkeypatch.setattr("app.batch.run.finish", refused)
    told, result = run(quick_model, options(tmp_path / "out"))
    assert told == ["midi/small_v02.mid: no file can say that"]
    assert (result.made, result.failed) == (2, ("midi/small_v02.mid",))


def test_a_clip_equals_the_output_of_its_command(quick_model, tmp_path, prompts):
    run(quick_model, options(tmp_path / "out", prompts))
    run(quick_model, options(tmp_path / "new"))
    prompt = read_prompt((prompts / "first song.mid").read_bytes())
    for number, seed in ((1, 5), (2, 6), (3, 7)):
        music = replace(MUSIC, seed=seed)
        *_, of_prompt = continue_prompt(quick_model, prompt, music)
        *_, of_nothing = generate_piece(quick_model, music)
        assert isinstance(of_prompt, Result)
        assert isinstance(of_nothing, Result)
        clip = tmp_path / "out" / "midi" / f"first-song_v0{number}.mid"
        assert clip.read_bytes() == of_prompt.pieces[0].midi
        clip = tmp_path / "new" / "midi" / f"small_v0{number}.mid"
        assert clip.read_bytes() == of_nothing.pieces[0].midi


def test_an_unusable_prompt_is_reported_and_the_others_are_used(quick_model, tmp_path, prompts):
    bad = prompts / "bad.mid"
    bad.write_bytes(b"not music")
    for path, problem in ((bad, "none of the prompts can"), (prompts / "x", "no such file")):
        with pytest.raises(CommandError, match=problem):
            run(quick_model, options(tmp_path / "out", path))
        assert not (tmp_path / "out").exists()
    (notice,), result = run(quick_model, options(tmp_path / "out", prompts))
    assert notice.startswith(bad.as_posix())
    assert result.failed == (bad.as_posix(),)
    assert (result.made, result.total) == (6, 6)


def test_a_prompt_that_changes_during_the_batch_is_left_out(quick_model, tmp_path, prompts):
    steps = make_batch(options(tmp_path / "out", prompts), Models.only(quick_model))
    next(steps)
    (prompts / "first song.mid").write_bytes(write_midi(two_hands(bars=3)))
    *progress, result = steps
    assert isinstance(result, BatchResult)
    assert any("has changed" in step.notice for step in progress if isinstance(step, BatchProgress))
    assert (len(result.failed), result.made) == (1, 3)


def test_resuming_a_stopped_batch_gives_the_same_files(quick_model, tmp_path, prompts):
    run(quick_model, options(tmp_path / "whole", prompts))
    for steps in (3, 120):
        asked = options(tmp_path / str(steps), prompts, width=2)
        _, stopped = run(quick_model, asked, after(steps))
        assert stopped.stopped
        assert stopped.made < 6
        there = {row["file"] for row in listed(asked.output)} if stopped.made else set()
        assert contents(asked.output).keys() - {"manifest.csv"} == there
        assert len(there) == stopped.made
        told, result = run(quick_model, replace(asked, resume=True))
        assert told == []
        assert (result.kept, result.made) == (stopped.made, 6 - stopped.made)
        assert contents(asked.output) == contents(tmp_path / "whole")


def test_more_clips_can_be_added_if_the_batch_is_resumed(quick_model, tmp_path):
    run(quick_model, options(tmp_path / "out", count=2))
    before = contents(tmp_path / "out")
    with pytest.raises(CommandError, match="this folder already contains a batch; use --resume"):
        run(quick_model, options(tmp_path / "out", count=4))
    assert contents(tmp_path / "out") == before
    _, result = run(quick_model, options(tmp_path / "out", count=4, resume=True))
    assert (result.kept, result.made) == (2, 2)
    run(quick_model, options(tmp_path / "whole", count=4))
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_clips_of_a_prompt_that_is_removed_or_unreadable_are_kept(quick_model, tmp_path, prompts):
    run(quick_model, options(tmp_path / "out", prompts))
    before = contents(tmp_path / "out")
    del before["manifest.csv"]
    lost, song = tmp_path / "out" / "midi" / "waltz_v03.mid", prompts / "first song.mid"
    data = song.read_bytes()
    for content, notice, failed in (
        (None, "this prompt no longer exists; its 3 clips are kept", []),
        (b"no longer MIDI", "MIDI", [song.as_posix()]),
    ):
        song.unlink()
        if content is not None:
            song.write_bytes(content)
        lost.unlink()
        told, result = run(quick_model, options(tmp_path / "out", prompts, resume=True))
        assert told[0].startswith(f"{song.as_posix()}: ")
        assert notice in told[0]
        assert len(told) == 2  # one clip is generated again
        assert [*result.failed] == failed
        assert result.made == 1
        assert {row["file"] for row in listed(tmp_path / "out")} == before.keys()
        after_it = contents(tmp_path / "out")
        del after_it["manifest.csv"]
        assert after_it == before
        song.write_bytes(data)
    # a prompt that exists, but was not given, may have been forgotten
    with pytest.raises(CommandError, match=r"first-song_v01\.mid was not requested"):
        run(quick_model, options(tmp_path / "out", prompts / "waltz.MIDI", resume=True))


def test_a_prompt_may_have_moved(quick_model, tmp_path, prompts, monkeypatch):
    run(quick_model, options(tmp_path / "out", prompts))
    monkeypatch.chdir(tmp_path / "out")
    told, result = run(quick_model, options(tmp_path / "out", Path("../prompts"), resume=True))
    assert told == []
    assert (result.kept, result.made) == (6, 0)
    prompts.rename(tmp_path / "moved")
    _, result = run(quick_model, options(tmp_path / "out", tmp_path / "moved", resume=True))
    assert (result.kept, result.made) == (6, 0)
