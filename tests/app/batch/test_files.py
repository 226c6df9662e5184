"""Files of clips are complete or absent, and files of other batches are not overwritten."""

import os

import pytest

from app.batch.files import lock_folder
from app.errors import CommandError
from tests.support.batches import contents, listed, options, run


def test_partial_files_of_a_killed_process_are_removed(quick_model, tmp_path):
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


def test_two_batches_do_not_write_in_one_folder_and_its_lock_file_stays(quick_model, tmp_path):
    lock = tmp_path / ".lock"
    with lock_folder(tmp_path):
        held, waiting = lock.stat().st_ino, lock.open()
        with pytest.raises(CommandError, match="another relpe batch is writing to this folder"):
            run(quick_model, options(tmp_path))
    with waiting, lock_folder(tmp_path):
        assert lock.stat().st_ino == held == os.fstat(waiting.fileno()).st_ino
    run(quick_model, options(tmp_path))


def test_unlisted_files_are_not_overwritten(quick_model, tmp_path):
    run(quick_model, options(tmp_path / "out", count=2))
    (tmp_path / "out" / "manifest.csv").unlink()
    before = contents(tmp_path / "out")
    for resume in (False, True):
        with pytest.raises(
            CommandError, match=r"midi contains small_v01\.mid, but there is no manifest"
        ):
            run(quick_model, options(tmp_path / "out", count=1, resume=resume))
    assert contents(tmp_path / "out") == before


def test_a_full_disk_ends_the_batch_and_keeps_finished_clips(quick_model, tmp_path, monkeypatch):
    from app.batch import files as batch_files

    save, saved = batch_files.save_clip, []

    def full(*given):
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
