"""Harmonization: frames and places of songs, likelihood, similarity, training, refusals."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.support.piano_rolls import random_frames, write_songs
from training.cli import main
from training.experiment import build_experiment
from training.tasks.series.harmonization import KEYS, logits_of, read_songs, similarity

MODEL = {
    **{"vocabulary_size": KEYS, "width": 16, "num_layers": 1, "num_heads": 2, "hidden": 16},
    **{"attention": {"kind": "softmax"}, "encoding": {"kind": "rope"}},
}


def plain_of(data: Path, **changes: object) -> dict[str, object]:
    plain = {"kind": "harmonization", "data": str(data), "length": 32, "batch_size": 2}
    return plain | {"model": MODEL} | changes


def test_frames_are_sixteenths_from_the_first_bar_line_on_with_places_in_bars_and_chords(tmp_path):
    [song] = read_songs(write_songs(tmp_path))["test"]
    frames = np.arange(80)  # 20 beats: the second of 22 is the first bar line, the last is the end
    expected = [frames, frames // 16, frames % 16, frames // 8]
    np.testing.assert_array_equal(song.places[:, :4].T, expected)
    names = song.places[:, 4]
    np.testing.assert_array_equal(names[:-32], names[32:])
    assert len({*names.tolist()}) == 4
    pitches = 72 + (frames // 4 + 2) % 7
    np.testing.assert_array_equal(song.melody.argmax(1) + 21, pitches)
    np.testing.assert_array_equal(song.accompaniment.argmax(1) + 21, pitches - 16)
    assert (song.melody.sum(1) == 1).all()
    window = song.window(24, 16)
    assert window.places[0].tolist() == [0, 0, 8, 0, names[24]]
    np.testing.assert_array_equal(window.places[:, 3], (frames[24:40] // 8) - 3)


def test_a_frame_depends_on_no_later_melody_and_no_other_row(tmp_path):
    task = build_experiment({"task": plain_of(write_songs(tmp_path))}).task
    decoder = task.model.build().eval().double()
    batch = task.batch(task.training_examples(), [0, 1])
    before = logits_of(decoder, batch, decoder.init_state(2))
    batch.melody[0, 9:] = 1 - batch.melody[0, 9:]
    after = logits_of(decoder, batch, decoder.init_state(2))
    torch.testing.assert_close(after[0, :9], before[0, :9])
    assert (after[0, 9:] != before[0, 9:]).any(-1).all()
    torch.testing.assert_close(after[1], before[1])


@given(st.integers(0, 2**32 - 1), st.integers(1, 70))
def test_equal_rolls_are_as_similar_as_can_be_and_octaves_do_not_count(seed, length):
    roll = random_frames(length, KEYS, seed=seed, share=0.05)
    roll[:, -12:] = 0
    best = {"chroma_similarity": 100, "groove_similarity": 100}
    best |= {"self_similarity_distance": 0, "density_distance": 0}
    assert similarity(roll, roll) == pytest.approx(best)
    # an octave changes no pitch class; a semitone changes them all, but nothing else
    assert similarity(np.roll(roll, 12, 1), roll) == pytest.approx(best)
    moved = similarity(np.roll(roll, 1, 1), roll)
    assert moved | {"chroma_similarity": 100} == pytest.approx(best)


def test_similarities_of_a_small_case_by_hand():
    truth, roll = np.zeros((2, 32, KEYS), np.uint8)
    truth[[0, 8, 16, 24], 3] = 1  # four Cs, each a frame long
    roll[[0, 8], 3] = 1
    roll[[16, 24], 4] = 1
    measured = similarity(roll, truth)
    assert measured["chroma_similarity"] == pytest.approx(100 / 2**0.5)
    assert measured["groove_similarity"] == pytest.approx(100)
    assert measured["density_distance"] == 0
    # of 16 half beats, 4 sound: 8 of their 16 pairs differ
    assert measured["self_similarity_distance"] == pytest.approx(100 * 8 / 16**2)


def test_a_run_learns_the_accompaniment_and_is_evaluated(tmp_path, capsys):
    data, config, run = write_songs(tmp_path), tmp_path / "c.json", tmp_path / "r"
    trainer = {"token_budget": 150 * 64, "device": "cpu", "precision": "32", "threads": 1}
    trainer |= {"validate_every": 50, "samples": 0, "loggers": []}
    optimizer = {"learning_rate": 1e-2, "warmup_steps": 5}
    task = plain_of(data, dropout=0.1, hidden_notes=0.1)
    config.write_text(json.dumps({"task": task, "trainer": trainer, "optimizer": optimizer}))
    assert main(["fit", "--config", str(config), "--run", str(run)]) == 0
    assert main(["evaluate", "--run", str(run), "--threads", "1", "--split", "validation"]) == 0
    assert "validation, trained length: nats per frame" in capsys.readouterr().out
    results = json.loads((run / "evaluation" / "results.json").read_text())
    assert results["trained length"]["frames"] == 80
    assert results["trained length"]["chroma_similarity"] > 60
    assert results["trained length"]["nats_per_frame"] < 10


def test_what_cannot_be_used_is_one_clear_sentence(tmp_path, capsys):
    good, config = write_songs(tmp_path), tmp_path / "config.json"
    damaged, few = tmp_path / "damaged", tmp_path / "few"
    shutil.copytree(good / "001", damaged / "001")
    shutil.copytree(good / "001", few / "001")
    (damaged / "001" / "beat_midi.txt").write_text("no beats")
    cases: tuple[tuple[Path, dict[str, object], str], ...] = (
        (damaged, {}, "001: expected a song of POP909"),
        (few, {}, "found no songs for validation; expected POP909"),
        (good, {"length": 8}, "length is 8"),
        (good, {"length": 400}, "no song for train has 200 frames"),
        (good, {"model": MODEL | {"vocabulary_size": 90}}, "but the task has 88 tokens"),
    )
    for data, changes, message in cases:
        config.write_text(json.dumps({"task": plain_of(data, **changes)}))
        assert main(["fit", "--config", str(config), "--run", str(tmp_path / "run")]) == 2
        assert message in capsys.readouterr().err.splitlines()[-1]
