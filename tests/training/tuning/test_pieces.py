from __future__ import annotations

import shutil
import zipfile

import numpy as np
import pytest

from tests.support.runs import piece
from tokenization.midi import write_midi
from tokenization.presets import PRESETS
from training.errors import TrainingError
from training.tuning.pieces import read_own_pieces

REMI = PRESETS["piano-2"].build()


def sides(own):
    return [
        {tuple(corpus.piece(index).tolist()) for index in range(len(corpus))}
        for corpus in (own.train, own.held_back)
    ]


def test_at_least_one_piece_is_held_back_and_files_and_their_order_make_no_difference(
    songs, tmp_path
):
    own = read_own_pieces((songs,), REMI)
    learned, held = sides(own)
    assert (len(learned), len(held), len(own.names)) == (5, 1, 1)
    assert not learned & held
    assert not own.unused
    files = sorted(songs.iterdir())
    with zipfile.ZipFile(tmp_path / "songs.zip", "w") as archive:
        for path in files:
            archive.write(path, path.name)
    for paths in ([tmp_path / "songs.zip"], [*files[::-1], songs]):
        assert sides(read_own_pieces(paths, REMI)) == [learned, held]


def test_copies_and_unreadable_files_are_left_out_and_reported(songs, tmp_path):
    folder = shutil.copytree(songs, tmp_path / "songs")
    (folder / "copy.mid").write_bytes((folder / "3.mid").read_bytes())
    (folder / "broken.mid").write_bytes(b"MThd")
    (folder / "note.txt").write_text("not music")
    own = read_own_pieces((folder,), REMI)
    assert sides(own) == sides(read_own_pieces((songs,), REMI))
    unused = {name.rpartition("/")[2] for name in own.unused}
    assert unused in ({"copy.mid", "broken.mid"}, {"3.mid", "broken.mid"})
    (tmp_path / "empty").mkdir()
    with pytest.raises(TrainingError, match=r"found no \.mid"):
        read_own_pieces((tmp_path / "empty",), REMI)


def test_pieces_with_one_melody_are_on_one_side_unless_most_share_it(tmp_path):
    tune = piece(100, 40)
    for number in range(8):
        score = piece(number, 20 + number)
        (tmp_path / f"{number}.mid").write_bytes(write_midi(score))
    own = read_own_pieces((tmp_path,), REMI)
    [name] = own.names
    # transposed copies of a held-back piece are held back as well
    number = int(name.rpartition("/")[2].removesuffix(".mid"))
    for shift in (1, 2):
        notes = np.add(piece(number, 20 + number).tracks[0].notes, [0, 0, shift, 0])
        score = piece(number, 20 + number)
        score = score.with_tracks([score.tracks[0].with_tables(notes=notes)])
        (tmp_path / f"{number}_{shift}.mid").write_bytes(write_midi(score))
    more = read_own_pieces((tmp_path,), REMI)
    of_tune = {path.name for path in tmp_path.glob(f"{number}*.mid")}
    held = {name.rpartition("/")[2] for name in more.names}
    assert not held & of_tune or of_tune <= held
    assert not more.shares_melodies
    only = tmp_path / "only"
    only.mkdir()
    for shift in range(6):
        notes = np.add(tune.tracks[0].notes, [0, 0, shift, 0])
        score = tune.with_tracks([tune.tracks[0].with_tables(notes=notes)])
        (only / f"{shift}.mid").write_bytes(write_midi(score))
    alike = read_own_pieces((only,), REMI)
    assert alike.shares_melodies
    assert (len(alike.train), len(alike.held_back)) == (5, 1)


def test_the_pieces_that_are_held_back_have_all_lengths(tmp_path):
    for number in range(20):
        (tmp_path / f"{number}.mid").write_bytes(write_midi(piece(number, 4 + number)))
    own = read_own_pieces((tmp_path,), REMI)
    assert own.held_back.lengths.shape == (3,)
    shortest, middle, longest = np.sort(own.held_back.lengths)
    assert shortest < 1.1 * np.quantile(own.train.lengths, 0.4)
    assert longest > 0.9 * np.quantile(own.train.lengths, 0.6)
    assert shortest < middle < longest
