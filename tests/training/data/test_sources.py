from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.data.sources import Source, deal
from training.errors import TrainingError

names = st.lists(st.text("abcdef/", min_size=1, max_size=8), min_size=1, max_size=40, unique=True)


def source(*members):
    return Source(Path("midi"), members)


@given(names=names)
def test_splitting_by_hash_fills_every_split_in_any_order_and_loses_nothing(names):
    names = [f"{name}.mid" for name in names]
    dealt, unassigned, _ = deal(source(*names), names, None)
    assert not unassigned
    assert sorted(name for members in dealt.values() for name in members) == sorted(names)
    assert list(dealt) == ["train", "validation", "test"]
    assert len(names) < 3 or all(dealt.values())
    again, *_ = deal(source(*names), names[::-1], None)
    assert {split: {*members} for split, members in dealt.items()} == {
        split: {*members} for split, members in again.items()
    }


def test_tables_and_folders_may_call_validation_val(tmp_path):
    names = [f"{name}.mid" for name in "abcde"]
    wanted = dict(
        zip(("train", "validation", "test", "extra"), ([name] for name in names), strict=False)
    )
    for other in ("val", "valid", "validation"):
        table = {"training": ["a"], other: ["b"], "test": ["c"], "extra": ["d"]}
        (tmp_path / "s.json").write_text(json.dumps(table))
        assert deal(source(*names), names, tmp_path / "s.json") == (wanted, ["e.mid"], [])
        placed = ["training/a.mid", f"{other}/b.mid", "test/c.mid", "extra/d.mid"]
        dealt, *_ = deal(source(*placed), placed, None)
        assert {s: [Path(n).name for n in members] for s, members in dealt.items()} == wanted


@pytest.fixture
def tree(tmp_path):
    """Files in folders, and links to a file, to a folder and to a missing file."""
    folder = tmp_path / "midi"
    for number, name in enumerate(("b.mid", "a/c.mid", "a/d/e.MID", "a/f.txt", "a b/g.midi")):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes([number]) * 1000 * number)
    (folder / "empty").mkdir()
    (folder / "link.mid").symlink_to("b.mid")
    (folder / "link").symlink_to("a")
    (folder / "nothing.mid").symlink_to("nowhere")
    return folder


def test_a_folder_lists_all_files_below_it_once(tree):
    names = Source.open(tree).names
    assert names == ("a b/g.midi", "a/c.mid", "a/d/e.MID", "a/f.txt", "b.mid", "link.mid")


def test_parts_of_an_archive_are_read_without_its_directory(tree, tmp_path, monkeypatch):
    path = tmp_path / "midi.zip"
    path.write_bytes(b"what stands before an archive")
    wanted = {}
    with zipfile.ZipFile(path, "a") as archive:
        for number, name in enumerate(Source.open(tree).names):
            wanted[name] = (tree / name).read_bytes()
            method = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)[number % 2]
            archive.writestr(name, wanted[name], compress_type=method)
        archive.mkdir("folder")
        wanted["b.mid"] = b"later"
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("b.mid", wanted["b.mid"])
    source = Source.open(path)
    assert source.names == tuple(sorted(wanted))
    monkeypatch.setattr(zipfile, "ZipFile", lambda path: pytest.fail("the directory is read again"))
    for names in (source.names, source.names[::-1], ("b.mid",), ()):
        assert list(source.part(names).read()) == [(name, wanted[name]) for name in names]
        assert list(Source.open(tree).part(names).read()) == [
            (name, (tree / name).read_bytes()) for name in names
        ]


def test_an_archive_that_was_cut_off_is_called_damaged(tree, tmp_path):
    path = tmp_path / "midi.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(tree / "b.mid")
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(TrainingError, match=r"midi\.zip: found an incomplete or damaged zip"):
        Source.open(path)


def test_a_stamp_depends_on_names_sizes_and_times(tree):
    names = ["b.mid", "a/c.mid"]
    stamp = Source.open(tree).stamp
    first = stamp(names)
    assert stamp(names) == first != stamp(names[:1])
    assert stamp(["a/c.mid", "b.mid"]) != first
    status = (tree / "b.mid").stat()
    os.utime(tree / "b.mid", ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    later = stamp(names)
    assert later != first
    (tree / "b.mid").write_bytes(b"x")
    os.utime(tree / "b.mid", ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    assert stamp(names) not in (first, later)


def test_a_name_in_two_splits_is_refused(tmp_path):
    table = tmp_path / "splits.json"
    table.write_text('{"train": ["a", "b"], "test": ["b"]}')
    with pytest.raises(TrainingError, match=r"splits\.json: 'b' is in the splits train and test"):
        deal(source("a.mid", "b.mid"), ["a.mid", "b.mid"], table)


@pytest.mark.parametrize(
    ("files", "counts"),
    [
        (["test/a.mid", "test/b/c.kar"], (0, 0, 2)),
        (["all/train/a.mid", "all/train/b.mid"], (2, 0, 0)),
        (["valid/a.mid", "test/b.mid"], (0, 1, 1)),
        (["train/a.mid", "test/b.mid", "more/c.mid"], (1, 0, 1)),
        (["test/a.mid", "album/b.mid", "album/c.mid"], (1, 1, 1)),  # a title
    ],
)
def test_folders_that_name_splits_are_kept(files, counts, tmp_path):
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    source = Source.open(tmp_path)
    dealt = deal(source, source.midi_names(), None)
    splits = dealt.splits
    assert tuple(len(splits[split]) for split in ("train", "validation", "test")) == counts
