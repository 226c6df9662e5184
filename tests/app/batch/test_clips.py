"""Names of clips, and prompts that are found."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.batch.clips import printable, source_of, unique_names
from app.cli.arguments import CommandError
from app.cli.inputs import find_midi, read_file
from app.compose.models import Models
from app.compose.options import MusicOptions
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
    wanted = ["My song (2)", "my song  2", "jazz-Étude", "日本", "///"]
    assert unique_names(wanted) == ["My-song-2", "my-song-2-2", "jazz-Étude", "日本", "music"]


def place(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"")
    return path


def test_folders_are_searched_in_order_and_files_taken_once(tmp_path):
    folder, output = tmp_path / "prompts", tmp_path / "prompts" / "out" / "midi"
    late, early = place(folder / "b.MID"), place(folder / "a" / "x.midi")
    alone = place(tmp_path / "song.mid")
    for other in ("b.txt", ".hidden.mid", ".git/x.mid", "out/midi/b_v01.mid"):
        place(folder / other)
    (folder / "again.mid").symlink_to(late)
    (folder / "round").symlink_to(folder, target_is_directory=True)
    found = find_midi([alone, folder, late], output)
    assert list(found.items()) == [(alone, "song"), (early, "a-x"), (folder / "again.mid", "again")]


def test_a_missing_file_or_empty_folder_is_refused(tmp_path):
    with pytest.raises(CommandError, match="nowhere: no such file or folder"):
        find_midi([tmp_path / "nowhere"], tmp_path / "out")
    with pytest.raises(CommandError, match="found no MIDI file"):
        find_midi([tmp_path], tmp_path / "out")
    with pytest.raises(CommandError, match="no such file or folder"):
        find_midi([tmp_path / ("x" * 300)], tmp_path / "out")


def test_a_file_is_read_up_to_a_size(tmp_path):
    path = place(tmp_path / "a.mid")
    path.write_bytes(b"1234")
    assert read_file(path, 4) == b"1234"
    with pytest.raises(CommandError, match="larger than 3 bytes"):
        read_file(path, 3)
    with pytest.raises(CommandError, match="Is a directory"):
        read_file(tmp_path, 3)


def test_a_prompt_is_parsed_once_before_it_is_accepted(quick_model, tmp_path, prompts, parsed):
    path = prompts / "first song.mid"
    source_of(options(tmp_path, prompts), Models.only(quick_model), "song", path)
    assert parsed == {path.read_bytes(): 1}


def test_a_path_that_is_not_utf_8_is_printable():
    assert printable(Path("a\udcff.mid")).encode() == "a\ufffd.mid".encode()


def test_the_seeds_must_suffice_for_all_clips(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="beyond the largest seed"):
        options(tmp_path, music=MusicOptions(seed=2**31 - 2))
