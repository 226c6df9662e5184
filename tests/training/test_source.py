from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.source import Source, deal

names = st.lists(st.text("abcdef/", min_size=1, max_size=8), min_size=1, max_size=40, unique=True)


def source(*members):
    return Source(Path("midi"), members)


@given(names=names)
def test_dealing_by_hash_fills_every_split_and_loses_nothing(names):
    names = [f"{name}.mid" for name in names]
    dealt, unassigned = deal(source(*names), names, None)
    assert not unassigned
    assert sorted(name for members in dealt.values() for name in members) == sorted(names)
    assert list(dealt) == ["train", "validation", "test"]
    assert len(names) < 3 or all(dealt.values())


@given(names=names)
def test_dealing_by_hash_does_not_depend_on_the_order(names):
    names = [f"{name}.mid" for name in names]
    first, _ = deal(source(*names), names, None)
    second, _ = deal(source(*names), names[::-1], None)
    assert {split: sorted(members) for split, members in first.items()} == {
        split: sorted(members) for split, members in second.items()
    }


@pytest.mark.parametrize("other", ["val", "valid", "validation"])
def test_tables_and_folders_may_call_validation_val(other, tmp_path):
    table = {"training": ["a"], other: ["b"], "test": ["c"], "extra": ["d"]}
    (tmp_path / "s.json").write_text(json.dumps(table))
    names = ["a.mid", "b.mid", "c.mid", "d.mid", "e.mid"]
    wanted = {
        "train": ["a.mid"],
        "validation": ["b.mid"],
        "test": ["c.mid"],
        "extra": ["d.mid"],
    }
    assert deal(source(*names), names, tmp_path / "s.json") == (wanted, ["e.mid"])
    names = ["training/a.mid", f"{other}/b.mid", "test/c.mid", "extra/d.mid"]
    dealt, _ = deal(source(*names), names, None)
    assert {split: [Path(n).name for n in members] for split, members in dealt.items()} == wanted
