"""Batches: each clip is what its prompt, model, options and seed make of it, and all are listed."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from app.batch.run import BatchProgress, BatchResult, make_batch
from app.cli.arguments import CommandError
from app.compose.continuation import Result, continue_prompt, finish, generate_piece
from app.compose.engine import Engine
from app.compose.models import Models
from app.compose.options import MusicOptions
from app.compose.piece import Draft, Opening, Piece
from app.compose.prompt import read_prompt
from relpe.decoding.steps import choose_steps
from tests.app.conftest import two_hands
from tests.support.batches import MUSIC, contents, listed, options, run
from tokenization.errors import MidiError
from tokenization.midi import read_midi, write_midi

if TYPE_CHECKING:
    from pathlib import Path

    from app.compose.models import MusicModel
    from relpe.decoding.steps import Backend


@pytest.mark.parametrize("backend", [pytest.param("torch", marks=pytest.mark.slow), "compiled"])
def test_the_same_bytes_at_any_width(
    small_model: MusicModel, tmp_path: Path, prompts: Path, backend: Backend
) -> None:
    short = replace(MUSIC, bars=1)
    steps = choose_steps(small_model.decoder, backend, threads=2)
    small_model = replace(small_model, steps=steps)
    made: list[dict[str, bytes]] = []
    for width in (1, 3, 4, 32):
        asked = options(tmp_path / str(width), prompts, width=width, music=short)
        _, result = run(small_model, asked)
        assert (result.made, result.kept, result.total) == (6, 0, 6)
        made.append(contents(asked.output))
    assert made[0] == made[1] == made[2] == made[3]


def test_steered_music_is_the_same_at_any_width_too(
    quick_model: MusicModel, tmp_path: Path, prompts: Path
) -> None:
    wanted = replace(MUSIC, bars=8, repetition=1.0, density=6.0, key="C", ending="cadence")
    for width in (1, 4):
        run(quick_model, options(tmp_path / str(width), prompts, width=width, music=wanted))
    assert contents(tmp_path / "1") == contents(tmp_path / "4")


def test_a_piece_that_cannot_be_written_is_said_and_the_others_go_on(
    quick_model: MusicModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(draft: Draft) -> Piece:
        if draft.seed == 6:
            raise MidiError("no file can say that")
        return finish(draft)

    monkeypatch.setattr("app.batch.making.finish", refused)
    told, result = run(quick_model, options(tmp_path / "out"))
    assert told == ["midi/small_v02.mid: no file can say that"]
    assert (result.made, result.failed) == (2, ("midi/small_v02.mid",))


def test_a_clip_is_what_its_command_writes(
    quick_model: MusicModel, tmp_path: Path, prompts: Path
) -> None:
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


def test_the_manifest_says_what_is_there(
    quick_model: MusicModel, tmp_path: Path, prompts: Path
) -> None:
    _, result = run(quick_model, options(tmp_path / "out", prompts))
    rows = listed(tmp_path / "out")
    assert [row["file"] for row in rows] == [
        *(f"midi/first-song_v0{number}.mid" for number in (1, 2, 3)),
        *(f"midi/waltz_v0{number}.mid" for number in (1, 2, 3)),
    ]
    assert [row["seed"] for row in rows] == ["5", "6", "7"] * 2
    prompt = prompts / "waltz.MIDI"
    for row in rows[3:]:
        data = (tmp_path / "out" / row["file"]).read_bytes()
        assert row["midi_sha256"] == hashlib.sha256(data).hexdigest()
        assert (row["audio"], row["audio_sha256"]) == ("", "")
        assert (row["prompt"], row["model"]) == (prompt.as_posix(), "small")
        assert row["backend"] == "quick"
        settings = json.loads(row["settings"])
        assert (settings["temperature"], settings["beats"]) == (1.0, "file")
        assert settings["prompt_sha256"] == hashlib.sha256(prompt.read_bytes()).hexdigest()
        assert row["bars"] == "2"
        before = read_midi(prompt.read_bytes()).num_notes
        assert int(row["notes"]) == read_midi(data).num_notes - before
        assert float(row["seconds"]) == pytest.approx(2 * 3 * 60 / 96, abs=0.01)
    assert result.tokens > 0
    assert result.music_seconds == pytest.approx(sum(float(row["seconds"]) for row in rows), 0.01)
    assert [path.name for path in (tmp_path / "out").rglob(".*")] == [".lock"]


def test_a_prompt_that_cannot_be_used_is_said_and_the_others_go_on(
    quick_model: MusicModel, tmp_path: Path, prompts: Path
) -> None:
    (prompts / "bad.mid").write_bytes(b"not music")
    told, result = run(quick_model, options(tmp_path / "out", prompts))
    (notice,) = told
    assert notice.startswith((prompts / "bad.mid").as_posix())
    assert result.failed == ((prompts / "bad.mid").as_posix(),)
    assert (result.made, result.total) == (6, 6)


def test_nothing_is_made_where_no_prompt_can_be_used(
    quick_model: MusicModel, tmp_path: Path
) -> None:
    (tmp_path / "bad.mid").write_bytes(b"not music")
    with pytest.raises(CommandError, match="none of the prompts can be used"):
        run(quick_model, options(tmp_path / "out", tmp_path / "bad.mid"))
    with pytest.raises(CommandError, match="no such file or folder"):
        run(quick_model, options(tmp_path / "out", tmp_path / "nowhere"))
    assert not (tmp_path / "out").exists()


def test_a_prompt_that_changes_meanwhile_is_left_out(
    quick_model: MusicModel, tmp_path: Path, prompts: Path
) -> None:
    steps = make_batch(options(tmp_path / "out", prompts), Models.only(quick_model))
    next(steps)
    (prompts / "first song.mid").write_bytes(write_midi(two_hands(bars=3)))
    *progress, result = steps
    assert isinstance(result, BatchResult)
    assert any("has changed" in step.notice for step in progress if isinstance(step, BatchProgress))
    assert (len(result.failed), result.made) == (1, 3)


def test_a_full_disk_ends_the_work_and_keeps_what_is_there(
    quick_model: MusicModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from app.batch import files as batch_files

    save, saved = batch_files.save_clip, []

    def full(*given: object) -> object:
        saved.append(given)
        if len(saved) > 2:
            raise OSError(28, "No space left on device")
        return save(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(batch_files, "save_clip", full)
    with pytest.raises(CommandError, match=r"midi/small_v0\d\.mid .*\(No space left on device\)"):
        run(quick_model, options(tmp_path / "out"))
    assert len(listed(tmp_path / "out")) == 2
    assert set(contents(tmp_path / "out")) == {
        "manifest.csv",
        *(row["file"] for row in listed(tmp_path / "out")),
    }


def test_seconds_are_in_the_manifest_in_place_of_bars(
    quick_model: MusicModel, tmp_path: Path
) -> None:
    run(quick_model, options(tmp_path / "out", music=replace(MUSIC, seconds=3.0), count=1))
    (row,) = listed(tmp_path / "out")
    settings = json.loads(row["settings"])
    assert settings["seconds"] == 3.0
    assert "bars" not in settings


def test_files_that_no_manifest_lists_are_not_written_over(
    quick_model: MusicModel, tmp_path: Path
) -> None:
    run(quick_model, options(tmp_path / "out", count=2))
    (tmp_path / "out" / "manifest.csv").unlink()
    before = contents(tmp_path / "out")
    for resume in (False, True):
        with pytest.raises(CommandError, match=r"midi holds small_v01\.mid, which no manifest"):
            run(quick_model, options(tmp_path / "out", count=1, resume=resume))
    assert contents(tmp_path / "out") == before


def test_seconds_move_the_bar_on_before_the_first_clip_is_there(quick_model: MusicModel) -> None:
    music = replace(MUSIC, seconds=60.0)
    opening = Opening.of_nothing(quick_model, music)
    engine = Engine(quick_model)
    (draft,) = engine.add(opening, [1])
    seen = [draft.part_done]
    while len(engine):
        engine.step()
        seen.append(draft.part_done)
    assert seen[0] == 0
    assert 0 < seen[len(seen) // 2] < 1
    assert seen == sorted(seen)
    assert seen[-1] > 0.5


def test_seeds_have_to_be_there_for_all(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="beyond the largest seed"):
        options(tmp_path, music=MusicOptions(seed=2**31 - 2))
