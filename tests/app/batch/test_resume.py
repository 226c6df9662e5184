"""Batches that were stopped, damaged or made in another way."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from app.batch import clips as batch_clips
from app.batch.files import alone_in
from app.cli.arguments import CommandError
from tests.app.conftest import two_hands
from tests.support.batches import MUSIC, after, contents, listed, options, run
from tokenization.midi import write_midi

if TYPE_CHECKING:
    from app.compose.models import MusicModel


@pytest.mark.parametrize("steps", [3, 120, 150])
def test_a_batch_that_was_stopped_is_finished_as_if_it_had_not_been(
    quick_model: MusicModel, tmp_path: Path, prompts: Path, steps: int
) -> None:
    run(quick_model, options(tmp_path / "whole", prompts))
    asked = options(tmp_path / "out", prompts, width=2)
    _, stopped = run(quick_model, asked, after(steps))
    assert stopped.stopped
    assert stopped.made < 6
    there = {row["file"] for row in listed(tmp_path / "out")} if stopped.made else set()
    files = set(contents(tmp_path / "out")) - {"manifest.csv"}
    assert files == there
    assert len(there) == stopped.made
    told, result = run(quick_model, replace(asked, resume=True))
    assert told == []
    assert (result.kept, result.made) == (stopped.made, 6 - stopped.made)
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_a_process_that_was_killed_leaves_nothing_half_written(
    quick_model: MusicModel, tmp_path: Path
) -> None:
    run(quick_model, options(tmp_path / "out"))
    before = contents(tmp_path / "out")
    half = tmp_path / "out" / "midi" / ".0123456789abcdef.part.mid"
    half.write_bytes(b"MThd")
    mine = tmp_path / "out" / "midi" / ".mine"
    mine.write_bytes(b"")
    run(quick_model, options(tmp_path / "out", resume=True))
    assert mine.exists()
    mine.unlink()
    assert contents(tmp_path / "out") == before


def test_what_is_damaged_or_missing_is_made_again(
    quick_model: MusicModel, tmp_path: Path, prompts: Path
) -> None:
    output = tmp_path / "out"
    run(quick_model, options(output, prompts))
    before = contents(output)
    (output / "midi" / "waltz_v01.mid").write_bytes(b"MThd")
    (output / "midi" / "waltz_v03.mid").unlink()
    told, result = run(quick_model, options(output, prompts, resume=True))
    assert told == [
        "midi/waltz_v01.mid is damaged: the clip is made again",
        "midi/waltz_v03.mid is missing: the clip is made again",
    ]
    assert (result.kept, result.made) == (4, 2)
    assert contents(output) == before


def test_more_clips_can_be_added(quick_model: MusicModel, tmp_path: Path) -> None:
    run(quick_model, options(tmp_path / "out", count=2))
    _, result = run(quick_model, options(tmp_path / "out", count=4, resume=True))
    assert (result.kept, result.made) == (2, 2)
    run(quick_model, options(tmp_path / "whole", count=4))
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_another_batch_is_not_written_over(quick_model: MusicModel, tmp_path: Path) -> None:
    run(quick_model, options(tmp_path / "out"))
    before = contents(tmp_path / "out")
    with pytest.raises(CommandError, match="there is a batch in this folder; give --resume"):
        run(quick_model, options(tmp_path / "out", count=9))
    assert contents(tmp_path / "out") == before


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"music": replace(MUSIC, temperature=0.9)}, "temperature 1.0, now 0.9"),
        ({"music": replace(MUSIC, bars=3)}, "bars 2, now 3"),
        ({"music": replace(MUSIC, seed=6)}, "seed 5, now 6"),
        ({"audio": "ogg"}, "audio none, now audio/first-song_v01.ogg"),
        ({"beats": "grid"}, "beats file, now grid"),
        ({"count": 2}, "first-song_v03.mid is not among the clips asked for"),
    ],
)
def test_other_settings_are_refused_by_the_first_difference(
    quick_model: MusicModel, tmp_path: Path, prompts: Path, change: dict[str, Any], said: str
) -> None:
    run(quick_model, options(tmp_path / "out", prompts))
    before = contents(tmp_path / "out")
    with pytest.raises(CommandError, match=said):
        run(quick_model, replace(options(tmp_path / "out", prompts, resume=True), **change))
    assert contents(tmp_path / "out") == before


def test_clips_of_a_prompt_that_cannot_be_read_any_more_stay(
    quick_model: MusicModel, tmp_path: Path, prompts: Path
) -> None:
    run(quick_model, options(tmp_path / "out", prompts))
    before = contents(tmp_path / "out")
    next(path for path in prompts.iterdir() if "first" in path.name).write_bytes(b"no longer MIDI")
    (tmp_path / "out" / "midi" / "waltz_v03.mid").unlink()
    told, result = run(quick_model, options(tmp_path / "out", prompts, resume=True))
    assert len(told) == 2  # one prompt cannot be read, one clip is made again
    assert [Path(name).name for name in result.failed] == ["first song.mid"]
    after_it = contents(tmp_path / "out")
    del before["manifest.csv"], after_it["manifest.csv"]
    assert after_it == before
    assert {row["file"] for row in listed(tmp_path / "out")} == before.keys()


def test_clips_of_a_prompt_that_is_gone_stay_with_a_notice(
    quick_model: MusicModel, tmp_path: Path, prompts: Path
) -> None:
    run(quick_model, options(tmp_path / "out", prompts))
    before = contents(tmp_path / "out")
    gone = prompts / "first song.mid"
    gone.rename(tmp_path / "elsewhere.mid")
    (tmp_path / "out" / "midi" / "waltz_v03.mid").unlink()
    told, result = run(quick_model, options(tmp_path / "out", prompts, resume=True))
    assert told[0] == f"{gone.as_posix()}: there is no such prompt any more; its 3 clips stay"
    assert (result.kept, result.made, result.failed) == (2, 1, ())
    after_it = contents(tmp_path / "out")
    assert {row["file"] for row in listed(tmp_path / "out")} == before.keys() - {"manifest.csv"}
    del before["manifest.csv"], after_it["manifest.csv"]
    assert after_it == before
    # one that is there, but was not given, may have been forgotten
    (tmp_path / "elsewhere.mid").rename(gone)
    with pytest.raises(CommandError, match=r"first-song_v01\.mid is not among the clips asked for"):
        run(quick_model, options(tmp_path / "out", prompts / "waltz.MIDI", resume=True))


def test_the_way_to_a_prompt_may_be_another(
    quick_model: MusicModel, tmp_path: Path, prompts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(quick_model, options(tmp_path / "out", prompts))
    monkeypatch.chdir(tmp_path / "out")
    told, result = run(quick_model, options(tmp_path / "out", Path("../prompts"), resume=True))
    assert told == []
    assert (result.kept, result.made) == (6, 0)
    prompts.rename(tmp_path / "moved")
    _, result = run(quick_model, options(tmp_path / "out", tmp_path / "moved", resume=True))
    assert (result.kept, result.made) == (6, 0)


def test_a_lock_is_the_same_file_for_all_who_try(tmp_path: Path) -> None:
    with alone_in(tmp_path):
        held = (tmp_path / ".lock").stat().st_ino
        waiting = (tmp_path / ".lock").open()
    with waiting, alone_in(tmp_path):
        assert (tmp_path / ".lock").stat().st_ino == held == os.fstat(waiting.fileno()).st_ino


def test_two_batches_do_not_write_in_one_folder(quick_model: MusicModel, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with (
        alone_in(tmp_path / "out"),
        pytest.raises(CommandError, match="another relpe batch is writing there"),
    ):
        run(quick_model, options(tmp_path / "out"))
    run(quick_model, options(tmp_path / "out"))


def test_other_versions_are_refused(
    quick_model: MusicModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(quick_model, options(tmp_path / "out"))
    monkeypatch.setattr(batch_clips, "versions", lambda: "relpe 99")
    with pytest.raises(CommandError, match=r"made with versions relpe .*, now relpe 99"):
        run(quick_model, options(tmp_path / "out", resume=True))


def test_another_model_or_prompt_is_refused(
    quick_model: MusicModel, tmp_path: Path, prompts: Path
) -> None:
    asked = options(tmp_path / "out", prompts, resume=True)
    run(quick_model, asked)
    with pytest.raises(CommandError, match="model sha256 abcd, now 00ff"):
        run(replace(quick_model, sha256="00ff"), asked)
    (prompts / "first song.mid").write_bytes(write_midi(two_hands(bars=3)))
    with pytest.raises(CommandError, match="prompt sha256 "):
        run(quick_model, asked)


@pytest.mark.parametrize("content", ["", "a,b\n1,2\n", "\0\xff", "file\n"])
def test_a_foreign_manifest_is_refused(
    quick_model: MusicModel, tmp_path: Path, content: str
) -> None:
    manifest = tmp_path / "out" / "manifest.csv"
    manifest.parent.mkdir()
    manifest.write_text(content, encoding="latin-1")
    with pytest.raises(CommandError, match=r"manifest\.csv: not a manifest of this command"):
        run(quick_model, options(tmp_path / "out", resume=True))
