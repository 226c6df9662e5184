"""Piano rolls: exact likelihoods of both kinds of outputs, windows, places, training, refusals."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from relpe.models.config import from_plain
from relpe.models.decoder import Decoder, DecoderConfig
from tests.support.piano_rolls import LENGTHS, random_frames, write_rolls
from training.cli import main
from training.experiment import build_experiment
from training.tasks.series.piano_rolls import (
    KEYS,
    Frames,
    nats_of,
    places_of,
    read_frames,
    tokens_of,
    transposed,
)

MODEL: dict[str, Any] = {
    **{"vocabulary_size": KEYS, "width": 16, "num_layers": 1, "num_heads": 2, "hidden": 16},
    **{"attention": {"kind": "softmax"}, "encoding": {"kind": "rope"}},
}
OUTPUTS = pytest.mark.parametrize("in_order", [False, True], ids=["independent", "in order"])


def model_of(keys: int, *, in_order: bool) -> dict[str, Any]:
    if not in_order:
        return MODEL | {"vocabulary_size": keys}
    events = {"closing": [[keys, keys + 1]], "hidden": 16, "most": 4}
    attention = {"kind": "windowed", "span": 16}
    return MODEL | {"vocabulary_size": keys + 1, "events": events, "attention": attention}


def decoder_of(keys: int, *, in_order: bool) -> Decoder:
    """A decoder in float64 with large weights, so that probabilities differ."""
    torch.manual_seed(0)
    config = from_plain(DecoderConfig, model_of(keys, in_order=in_order))
    decoder = config.build().eval().double()
    with torch.no_grad():
        for weight in decoder.parameters():
            weight.mul_(4)
    return decoder


def batch_of(frames: np.ndarray) -> Frames:
    """All frames (b, l, k) but the first of each row are predicted."""
    asked = torch.ones(frames.shape[:2], dtype=torch.bool)
    asked[:, 0] = False
    places = torch.arange(frames.shape[1])[None, :, None].expand(len(frames), -1, -1)
    return Frames(torch.from_numpy(frames), places, asked)


@torch.no_grad()
def nats(decoder: Decoder, frames: np.ndarray) -> torch.Tensor:
    return nats_of(decoder, batch_of(frames), decoder.init_state(len(frames)))


def plain_of(data: Path, **changes: Any) -> dict[str, Any]:
    plain = {"kind": "piano_rolls", "data": str(data), "name": "jsb", "longest": 10}
    return plain | {"batch_size": 2, "model": MODEL} | changes


def task_of(data: Path, **changes: Any) -> Any:
    return build_experiment({"task": plain_of(data, **changes)}).task


@OUTPUTS
def test_the_probabilities_of_all_next_frames_sum_to_one(in_order: bool) -> None:
    decoder, past = decoder_of(4, in_order=in_order), random_frames(1, 5, 4, share=0.6)
    following = np.array([*itertools.product((0, 1), repeat=4)], np.uint8)
    frames = np.concatenate([past.repeat(16, 0), following[:, None]], 1)
    chances = nats(decoder, frames)[:, -1].neg().exp()
    assert float(chances.sum()) == pytest.approx(1, abs=1e-9)
    assert chances.max() > 2 * chances.min()


@OUTPUTS
def test_no_frame_depends_on_later_frames_and_no_row_on_others(in_order: bool) -> None:
    decoder = decoder_of(6, in_order=in_order)
    frames = random_frames(3, 9, 6)
    before = nats(decoder, frames)
    changed = frames.copy()
    changed[0, 5:] = 1 - changed[0, 5:]
    after = nats(decoder, changed)
    torch.testing.assert_close(after[0, :5], before[0, :5])
    assert (after[0, 5:] != before[0, 5:]).all()
    torch.testing.assert_close(after[1:], before[1:])
    shorter = np.concatenate([frames[:, :7], np.zeros_like(frames[:, 7:])], 1)
    torch.testing.assert_close(nats(decoder, shorter)[:, :7], before[:, :7])


def test_keys_that_are_independent_have_the_likelihood_of_their_sigmoids() -> None:
    decoder, frames = decoder_of(6, in_order=False), random_frames(2, 7, 6)
    x = torch.from_numpy(frames).double()
    rows, _ = decoder.through_blocks(
        x @ decoder.embedding.weight, batch_of(frames).positions, decoder.init_state(2)
    )
    chances = torch.sigmoid(decoder.project_out(decoder.norm(rows)))[:, :-1]
    expected = -torch.where(x[:, 1:] > 0, chances, 1 - chances).log().sum(-1)
    torch.testing.assert_close(nats(decoder, frames)[:, 1:], expected)


@given(st.integers(0, 2**32 - 1), st.floats(0, 1))
def test_tokens_are_the_keys_of_each_frame_and_an_end(seed: int, share: float) -> None:
    frames = random_frames(2, 4, 5, seed=seed, share=share)
    tokens, frame = tokens_of(torch.from_numpy(frames))
    for row in range(2):
        expected = [
            (key, at) for at in range(4) for key in (*np.flatnonzero(frames[row, at]).tolist(), 5)
        ]
        made = [*zip(tokens[row].tolist(), frame[row].tolist(), strict=True)]
        assert made[: len(expected)] == expected
        assert set(made[len(expected) :]) <= {(5, 3)}


@given(st.integers(0, 2**32 - 1), st.integers(-4, 4))
def test_transposition_moves_all_notes_and_loses_those_beyond_the_keys(seed: int, by: int) -> None:
    frames = random_frames(1, 3, 9, seed=seed)
    moved = transposed(torch.from_numpy(frames), torch.tensor([by]))
    kept = {(at, key + by) for _, at, key in zip(*frames.nonzero(), strict=True)}
    assert {(at, key) for at, key in moved[0].nonzero().tolist()} == {
        (at, key) for at, key in kept if 0 <= key < 9
    }


def test_places_count_changes_and_name_pitch_classes_and_depend_on_no_later_frame() -> None:
    frames = np.zeros((6, KEYS), np.uint8)
    frames[1:4, [3, 15]] = 1  # C and C an octave above
    frames[4, 27] = 1
    assert places_of(frames).tolist() == [
        [0, 0, 0, 0],
        [1, 1, 0, 1],
        [2, 1, 1, 1],
        [3, 1, 2, 1],
        [4, 2, 0, 1],
        [5, 3, 0, 0],
    ]
    several = random_frames(20, KEYS, share=0.01)
    for length in (1, 7, 20):
        np.testing.assert_array_equal(places_of(several[:length]), places_of(several)[:length])


def test_every_frame_but_the_first_of_a_sequence_is_predicted_once(tmp_path: Path) -> None:
    task = task_of(write_rolls(tmp_path / "rolls.npz"))
    names: tuple[tuple[Any, str], ...]
    names = (("train", "train"), ("validation", "valid"), ("test", "test"))
    for name, split in names:
        sequences = read_frames(task.data, "jsb", name)
        assert [len(one) for one in sequences] == [*LENGTHS[split]]
        found = [
            (window.places[at, 0], window.frames[at].tobytes())
            for window in task.split(name)
            for at in range(window.first, len(window.frames))
        ]
        assert found == [
            (at, frame.tobytes()) for one in sequences for at, frame in enumerate(one) if at
        ]
        batch = task.batch(task.split(name), range(2))
        assert int(batch.asked.sum()) == sum(len(w.frames) - w.first for w in task.split(name)[:2])


@OUTPUTS
@pytest.mark.parametrize("suffix", [".npz", ".mat"])
def test_a_run_learns_what_repeats_and_is_evaluated(
    in_order: bool, suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_rolls(tmp_path / f"JSB_Chorales{suffix}", every=3)
    data, config, run = path if suffix == ".npz" else tmp_path, tmp_path / "c.json", tmp_path / "r"
    model = model_of(KEYS, in_order=in_order)
    task = plain_of(data, model=model, dropout=0.1, hidden_notes=0.1)
    trainer = {"token_budget": 60 * 20, "device": "cpu", "precision": "32", "threads": 1}
    trainer |= {"validate_every": 30, "samples": 0, "loggers": []}
    optimizer = {"learning_rate": 1e-2, "warmup_steps": 5}
    config.write_text(json.dumps({"task": task, "trainer": trainer, "optimizer": optimizer}))
    assert main(["fit", "--config", str(config), "--run", str(run)]) == 0
    assert main(["evaluate", "--run", str(run), "--threads", "1"]) == 0
    assert "nats per frame (29 frames)" in capsys.readouterr().out
    results = json.loads((run / "evaluation" / "results.json").read_text())
    assert results["outputs"] == ("in order" if in_order else "independent")
    assert results["nats_per_frame"] < 8


def test_what_cannot_be_used_is_one_clear_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, config = write_rolls(tmp_path / "rolls.npz"), tmp_path / "config.json"
    (tmp_path / "text.npz").write_text("no frames")
    np.savez(tmp_path / "empty.npz", jsb_train=np.zeros((0, 11), np.uint8), jsb_train_len=[])
    wrong_events = model_of(KEYS, in_order=True) | {"events": {"closing": [[0, 1]]}}
    cases: tuple[tuple[Path, dict[str, Any], str], ...] = (
        (tmp_path, {}, "JSB_Chorales.mat: found no train frames of jsb"),
        (tmp_path / "text.npz", {}, "found no train frames of jsb"),
        (good, {"name": "nottingham"}, "found no train frames of nottingham"),
        (tmp_path / "empty.npz", {}, "expected sequences of frames with 88 keys"),
        (good, {"model": MODEL | {"vocabulary_size": 90}}, "but the task has 88 tokens"),
        (good, {"model": wrong_events}, "expected [[88, 89]]"),
        (good, {"dropout": 1.0}, "dropout is 1.0"),
    )
    for data, changes, message in cases:
        config.write_text(json.dumps({"task": plain_of(data, **changes)}))
        assert main(["fit", "--config", str(config), "--run", str(tmp_path / "run")]) == 2
        assert message in capsys.readouterr().err.splitlines()[-1]
