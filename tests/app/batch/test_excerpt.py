"""Clips are parts of pieces: their notes are those of the whole piece, from a bar line on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.batch.excerpt import Excerpt, part_from
from app.compose.continuation import continue_prompt, generate_piece
from app.compose.prompt.prompt import read_prompt
from tests.support.batches import MUSIC, listed, options, run
from tests.support.scores import performance
from tokenization.midi import read_midi, write_midi
from tokenization.score import Score, Tempo, TimeSignature, Track, all_notes

BAR = 4 * 480


def rows(score: Score, begin: int = 0) -> list[tuple[int, ...]]:
    """Notes that sound from a tick on, with their programs; times count from there."""
    found = []
    for track in score.tracks:
        for onset, length, pitch, velocity in track.notes.tolist():
            end = onset + length
            if onset >= begin or (end > begin and not track.is_drum):
                start = max(onset, begin)
                found.append((start - begin, end - start, pitch, velocity, track.program))
    return sorted(found)


notes = st.lists(
    st.tuples(st.integers(0, 6 * BAR), st.integers(1, 3 * BAR), st.integers(40, 80)),
    min_size=1,
    max_size=12,
    unique_by=lambda note: note[2],
).map(lambda given: [(*note, 70) for note in given])


@given(notes, notes, st.integers(0, 5))
def test_a_part_has_the_notes_of_the_whole_in_its_range(first, second, bar):
    score = Score(480, (Track.of(first, 30), Track.of(second, 5)), end_ticks=9 * BAR)
    score = read_midi(write_midi(score))
    part = part_from(score, bar * BAR)
    assert rows(part) == rows(score, bar * BAR)
    if part.num_notes:
        assert rows(read_midi(write_midi(part))) == rows(part)


def test_what_applies_at_the_cut_is_set_at_the_start_of_a_part():
    controls = np.array([(0, 7, 100), (10, 64, 127), (20, 7, 60), (30, 123, 0), (3 * BAR, 64, 0)])
    bends = np.array([(5, 100), (6, -200), (3 * BAR, 0)])
    track = Track(np.array([(2 * BAR, 10, 60, 70)]), 12, controls=controls, bends=bends)
    score = Score(
        480,
        (track, Track.of([(0, 10, 40, 70)], 50)),
        (Tempo(0, 90.0), Tempo(BAR, 100.0), Tempo(3 * BAR, 110.0)),
        (TimeSignature(0, 3, 4), TimeSignature(BAR, 4, 4)),
        4 * BAR,
    )
    part = read_midi(write_midi(part_from(score, 2 * BAR)))
    assert [(tick, round(bpm)) for tick, bpm in part.tempos] == [(0, 100), (BAR, 110)]
    assert part.time_signatures == (TimeSignature(0, 4, 4),)
    (kept,) = part.tracks  # the other one is over
    assert kept.program == 12
    assert kept.controls.tolist() == [[0, 64, 127], [0, 7, 60], [BAR, 64, 0]]
    assert kept.bends.tolist() == [[0, -200], [BAR, 0]]


@pytest.mark.parametrize(("kind", "bars"), [("tail", 1), ("new", 0)])
def test_the_new_music_begins_at_the_bar_and_second_of_the_manifest(
    quick_model, tmp_path, prompts, kind, bars
):
    run(quick_model, options(tmp_path / "out", prompts, clip=kind, clip_bars=bars or 4, count=1))
    run(quick_model, options(tmp_path / "whole", prompts, count=1))
    for row, whole in zip(listed(tmp_path / "out"), listed(tmp_path / "whole"), strict=True):
        clip = read_midi((tmp_path / "out" / row["file"]).read_bytes())
        piece = read_midi((tmp_path / "whole" / whole["file"]).read_bytes())
        quarters = 3 if "waltz" in row["file"] else 4
        begin = (4 - bars) * quarters * 480
        assert rows(clip) == rows(piece, begin)
        assert clip.tempos == piece.tempos
        assert clip.time_signatures == piece.time_signatures
        assert row["new_bar"] == str(bars + 1)
        seconds = bars * quarters * 60 / 96
        assert float(row["new_seconds"]) == pytest.approx(seconds, abs=2e-3)
        whole_clip = seconds + float(row["seconds"])
        assert float(row["clip_seconds"]) == pytest.approx(whole_clip, abs=2e-3)
        # the first new note is at or after that second, and the prompt is before it
        onsets = clip.seconds_at(all_notes(clip.tracks)[:, 0])
        new = int((onsets >= float(row["new_seconds"]) - 2e-3).sum())
        assert new == int(row["notes"]) == int(whole["notes"])
        assert whole["new_bar"] == "5"


def test_clips_of_a_recording_and_of_a_piece_from_nothing(quick_model):
    prompt = read_prompt(write_midi(performance()))
    *_, result = continue_prompt(quick_model, prompt, MUSIC)
    excerpt = Excerpt.of_piece(result.pieces[0], prompt, "tail", 2)  # type: ignore[union-attr]
    assert excerpt.new_bar == 3
    assert excerpt.new_seconds == pytest.approx(8 * 60 / 83, abs=0.1)
    assert excerpt.notes == result.pieces[0].notes  # type: ignore[union-attr]
    *_, result = generate_piece(quick_model, MUSIC)
    (piece,) = result.pieces  # type: ignore[union-attr]
    excerpt = Excerpt.of_piece(piece, None, "tail", 2)
    assert (excerpt.begin, excerpt.splice, excerpt.new_bar) == (0, 0, 1)
    assert excerpt.seconds == pytest.approx(piece.seconds)
    # a blind clip has no names
    score = excerpt.score
    named = score.with_tracks(replace(track, name="Secret") for track in score.tracks)
    assert b"Secret" in replace(excerpt, score=named).midi()
    assert b"Secret" not in replace(excerpt, score=named).midi(blind=True)
