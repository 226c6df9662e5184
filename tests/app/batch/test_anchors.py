"""Real continuations and low anchors."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from app.batch.anchors import anchor_of, check_real_music, real_music
from app.errors import CommandError
from tests.support.paths import ROOT
from tests.support.scores import performance, two_hands
from tokenization.midi import read_midi, write_midi
from tokenization.score import all_notes


def test_anchors_keep_the_prompt_and_the_number_of_notes_metres_and_tempos():
    kinds: dict[str, Any] = {"waltz": "real", "groove": "shuffled_bars"}
    kinds["barcarole"] = "shuffled_notes"
    for name, kind in kinds.items():
        data = (ROOT / "examples" / f"{name}.mid").read_bytes()
        music = real_music(data, name, 4, 4, "auto")
        excerpt = anchor_of(music, 4, kind, 7, ("tail", 2))
        real = anchor_of(music, 4, "real", 0, ("tail", 2))
        assert (excerpt.notes, excerpt.new_bar) == (real.notes, 3)
        clip, like = read_midi(excerpt.midi()), read_midi(real.midi())
        assert (clip.tempos, clip.time_signatures) == (like.tempos, like.time_signatures)
        assert clip.num_notes == like.num_notes
        splice = excerpt.splice - excerpt.begin
        for track, other in zip(clip.tracks, like.tracks, strict=True):
            assert (track.program, track.is_drum) == (other.program, other.is_drum)
            before, before_other = (t.notes[t.notes[:, 0] < splice] for t in (track, other))
            assert before[:, [0, 2, 3]].tolist() == before_other[:, [0, 2, 3]].tolist()
            new, new_other = (t.notes[t.notes[:, 0] >= splice] for t in (track, other))
            assert sorted(new[:, 2]) == sorted(new_other[:, 2])
            assert sorted(new[:, 3]) == sorted(new_other[:, 3])
            if kind == "shuffled_notes":
                assert new[:, 0].tolist() == new_other[:, 0].tolist()
        if kind != "real":
            assert all_notes(clip.tracks).tolist() != all_notes(like.tracks).tolist()
        assert all(track.end_ticks <= excerpt.end - excerpt.begin for track in clip.tracks)
        seeds = (7, 8) if kind != "real" else (7,)
        again = [anchor_of(music, 4, kind, seed, ("tail", 2)).midi() for seed in seeds]
        assert again[0] == excerpt.midi() not in again[1:]


def test_every_bar_moves_also_in_a_recording():
    music = real_music(write_midi(performance()), "a", 4, 6, "auto")
    real = anchor_of(music, 4, "real", 0, ("new", 0))
    moved = anchor_of(music, 4, "shuffled_bars", 3, ("new", 0))
    assert moved.notes == real.notes
    lines = [music.line(bar) for bar in range(4, 11)]
    for begin, end in pairwise(lines):
        pitches = [
            [tuple(row) for row in (all_notes(e.score.tracks)[:, [0, 2]]).tolist()]
            for e in (real, moved)
        ]
        inside = [[p for at, p in rows if begin <= at < end] for rows in pitches]
        assert inside[0] != inside[1]


def test_a_file_that_is_too_short_is_refused_in_one_sentence():
    data = write_midi(two_hands(bars=6))
    with pytest.raises(CommandError, match=r"song\.mid: the file has 6 bars, .* need 8"):
        check_real_music(data, "song.mid", 4, 4, "auto")
    with pytest.raises(CommandError, match="a real continuation needs last_bar"):
        check_real_music(data, "song.mid", None, 2, "auto")
    rest = np.array([(0, 100, 60, 70), (9 * 1920, 100, 60, 70)])
    score = two_hands(bars=1)
    score = score.with_tracks([score.tracks[0].with_tables(notes=rest)])
    with pytest.raises(CommandError, match="there is no note in the 4 bars after bar 4"):
        check_real_music(write_midi(score), "song.mid", 4, 4, "auto")
