from __future__ import annotations

import errno
import json
from typing import Any, cast

import pytest
import torch

from relpe.models.decoder import DecoderConfig
from tokenization.remi.multitrack import MultitrackRemiConfig
from training.config import build
from training.errors import TrainingError
from training.experiment import build_experiment
from training.runs.fit import fit
from training.runs.weights import (
    CheckpointFiles,
    digest,
    fill,
    keep_styles,
    load_decoder,
    read_checkpoint,
    round_as_released,
    start_from,
)


@pytest.fixture
def decoder(experiment):
    return build_experiment(experiment).task.model.build()


def test_averaged_weights_are_loaded(experiment, tmp_path):
    experiment["trainer"] = experiment["trainer"] | {"ema_decay": 0.9}
    fit(build_experiment(experiment), tmp_path, show=False)
    checkpoint = torch.load(tmp_path / "last.ckpt", weights_only=True)
    decoder, origin = load_decoder(tmp_path, "last")
    for parameter, mean in zip(decoder.parameters(), checkpoint["average"]["mean"], strict=True):
        assert torch.equal(parameter, mean)
    [segment] = json.loads((tmp_path / "run.json").read_text())["sessions"]
    assert origin == ("last.ckpt", digest(decoder), 6, 6 * 64, segment["commit"])

    (tmp_path / "best.ckpt").unlink()
    with pytest.raises(TrainingError, match=r"no best\.ckpt, since there was no validation"):
        load_decoder(tmp_path)


def test_the_digest_covers_all_weights_in_released_precision(decoder):
    whole = digest(decoder)
    round_as_released(decoder)
    assert digest(decoder) == whole
    for tensor in decoder.state_dict().values():
        assert torch.equal(tensor, tensor.bfloat16().float())
        kept = tensor.flatten()[-1].clone()
        tensor.view(-1)[-1] += 1
        assert digest(decoder) != whole
        tensor.view(-1)[-1] = kept
    assert digest(decoder) == whole


@pytest.mark.parametrize("content", [b"", b"no checkpoint", None])
def test_a_damaged_checkpoint_is_reported_in_one_sentence(tmp_path, content):
    path = tmp_path / "last.ckpt"
    torch.save({"state_dict": torch.zeros(4000)}, path)
    path.write_bytes(path.read_bytes()[:3000] if content is None else content)
    with pytest.raises(
        TrainingError, match=rf"^{path}: the checkpoint is damaged[^\n]*; try again$"
    ):
        read_checkpoint(path, "try again")


@pytest.mark.parametrize("place", [0.3, 0.5, 0.7])
def test_changed_bytes_of_a_checkpoint_are_detected(tmp_path, place):
    path = tmp_path / "best.ckpt"
    torch.save({"state_dict": torch.ones(4000)}, path)
    content = bytearray(path.read_bytes())
    content[int(place * len(content))] ^= 1
    path.write_bytes(content)
    torch.load(path, weights_only=True)  # torch takes them
    with pytest.raises(
        TrainingError, match=rf"^{path}: the checkpoint is damaged[^\n]*; try again$"
    ):
        read_checkpoint(path, "try again")


class FullDisk:
    """A file on a disk with space for `room` bytes."""

    def __init__(self, stream, room):
        self._stream, self._room = stream, room

    def write(self, content):
        self._room -= len(content)
        if self._room < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return self._stream.write(content)

    def flush(self):
        self._stream.flush()


@pytest.mark.parametrize("room", [0, 100, 8000, 16500])
def test_a_full_disk_does_not_damage_the_previous_checkpoint(tmp_path, monkeypatch, room):
    path = tmp_path / "last.ckpt"
    files = CheckpointFiles()
    files.save_checkpoint({"step": torch.full((4000,), 1.0)}, path)
    save = torch.save
    with monkeypatch.context() as patch:
        patch.setattr(
            torch,
            "save",
            lambda content, stream: save(content, cast("Any", FullDisk(stream, room))),
        )
        with pytest.raises(
            TrainingError,
            match=rf"^{path}: cannot be written \(No space left on device\)[^\n]*free some disk",
        ):
            files.save_checkpoint({"step": torch.full((4000,), 2.0)}, path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["last.ckpt"]
    assert float(torch.load(path, weights_only=True)["step"].mean()) == 1.0


def test_other_errors_are_not_reported_as_errors_of_the_disk(tmp_path):
    with pytest.raises(AttributeError, match="pickle"):
        CheckpointFiles().save_checkpoint({"step": lambda: 1}, tmp_path / "last.ckpt")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("content", [[1], {"state_dict": {}}])
def test_files_other_than_checkpoints_are_refused(tmp_path, content):
    torch.save(content, tmp_path / "best.ckpt")
    with pytest.raises(TrainingError, match="not a checkpoint of relpe-train"):
        read_checkpoint(tmp_path / "best.ckpt", "try again")


def test_weights_of_another_shape_are_refused_in_one_line(experiment, decoder, tmp_path):
    wider = experiment["task"]["model"] | {"hidden": 24}
    other = build_experiment(experiment | {"task": experiment["task"] | {"model": wider}})
    checkpoint = {"state_dict": other.task.model.build().state_dict()}
    with pytest.raises(TrainingError, match=r"^[^\n]*weights of another model: size mismatch"):
        fill(decoder, checkpoint, tmp_path)


def test_rotary_weights_become_algebraic_ones(tmp_path):
    sizes = {"vocabulary_size": 20, "width": 16, "num_layers": 1, "num_heads": 2, "hidden": 16}
    rotary, algebraic, other = (
        build(DecoderConfig, {**sizes, "attention": {"kind": kind}, "encoding": {"kind": encoding}})
        for kind, encoding in (("softmax", "rope"), ("windowed", "algebraic"), ("linear", "none"))
    )
    first, decoder = rotary.build(), algebraic.build()
    start_from(decoder, first, tmp_path)
    tokens, positions = torch.arange(20)[None], torch.arange(20)[None, :, None]
    made, expected = (
        model(tokens, positions, model.init_state(1))[0] for model in (decoder, first)
    )
    torch.testing.assert_close(made, expected, rtol=1e-4, atol=1e-5)
    message = "another model: its attention.kind is linear, that of the config is windowed; use the"
    with pytest.raises(TrainingError, match=message):
        start_from(decoder, other.build(), tmp_path)


def test_styles_keep_their_weights_when_others_are_added():
    before = MultitrackRemiConfig(styles=("ballad", "jazz", "waltz")).build()
    after = MultitrackRemiConfig(styles=("ballad", "game", "jazz")).build()
    size, style = len(before.vocabulary), before.families.style
    sizes = {"vocabulary_size": size, "width": 8, "num_layers": 1, "num_heads": 1, "hidden": 8}
    events = {"closing": [[4, 5]], "hidden": 8}
    decoder = build(DecoderConfig, {**sizes, "events": events}).build()
    layers = (decoder.embedding, decoder.project_out, decoder.events.embedding)
    first = [layer.weight.detach().clone() for layer in layers]
    keep_styles(decoder, before, after)
    for layer, weight in zip(layers, first, strict=True):
        moved = {0: 0, 1: 2, 2: 1}  # number of a style -> number whose weights it has
        for number in range(64):
            source = weight[style + moved.get(number, number)]
            torch.testing.assert_close(layer.weight[style + number], source, rtol=0, atol=0)
        torch.testing.assert_close(layer.weight[:style], weight[:style], rtol=0, atol=0)
