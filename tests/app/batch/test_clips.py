"""Names of clips, their prompts and their seeds."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.batch.clips import _check_splices, printable, sources_of, unique_names
from app.compose.models import Models
from app.compose.options import MusicOptions
from app.errors import CommandError
from tests.support.batches import options


@given(st.lists(st.text(max_size=80) | st.sampled_from(["a", "A", "a-2", "", "..", "a/b", "é"])))
def test_names_are_safe_and_distinct(wanted):
    names = unique_names(wanted)
    assert len(names) == len(wanted)
    assert len({name.casefold() for name in names}) == len(names)
    for name in names:
        assert Path(name).name == name
        assert not name.startswith((".", "-"))
        assert len(f"{name}_v01.flac".encode()) < 100


def test_names_keep_the_words_of_titles():
    assert printable(Path("a\udcff.mid")).encode() == "a\ufffd.mid".encode()
    wanted = ["My song (2)", "my song  2", "jazz-Étude", "日本", "///"]
    assert unique_names(wanted) == ["My-song-2", "my-song-2-2", "jazz-Étude", "日本", "music"]


def test_a_prompt_is_parsed_once_before_it_is_accepted(quick_model, tmp_path, prompts, parsed):
    path = prompts / "first song.mid"
    sources_of(options(tmp_path, prompts), Models.only(quick_model), "song", path)
    assert parsed == {path.read_bytes(): 1}


def test_clips_need_seeds_and_one_place_where_new_music_begins(tmp_path):
    _check_splices("a.mid", {"x": 8.0, "y": 8.004})
    with pytest.raises(CommandError, match=r"at 8\.0 s with 'x' and at 9\.5 s with 'y', since"):
        _check_splices("a.mid", {"y": 9.5, "x": 8.0})
    with pytest.raises(CommandError, match="would exceed the largest seed"):
        options(tmp_path, music=MusicOptions(seed=2**31 - 2))
