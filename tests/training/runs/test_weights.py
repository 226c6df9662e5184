from __future__ import annotations

import errno
import json
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from relpe.models.decoder import DecoderConfig
from tokenization.remi.multitrack import MultitrackRemiConfig
from training.config import build
from training.errors import TrainingError
from training.experiment import build_experiment, read_experiment
from training.runs.fit import fit
from training.runs.weights import (
    digest,
    fill,
    keep_styles,
    load_decoder,
    read_checkpoint,
    round_as_released,
    start_from,
    write_checkpoint,
)


@pytest.fixture
def decoder(experiment):
    return build_experiment(experiment).task.model.build()


def test_averaged_weights_are_loaded(experiment, tmp_path):
    experiment["trainer"] |= {"ema_decay": 0.9}
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
    with pytest.raises(TrainingError, match="no such file, expected best, last or a file"):
        load_decoder(tmp_path, "first")


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


def test_a_damaged_checkpoint_is_reported_in_one_sentence(tmp_path):
    path = tmp_path / "last.ckpt"
    torch.save({"state_dict": torch.ones(4000)}, path)
    whole = path.read_bytes()
    changed = bytearray(whole)
    changed[len(whole) // 2] ^= 1
    for content in (b"", b"no checkpoint", whole[:3000], changed):
        path.write_bytes(content)
        with pytest.raises(
            TrainingError, match=rf"^{path}: the checkpoint is damaged[^\n]*; try again$"
        ):
            read_checkpoint(path, "try again")
    torch.load(path, weights_only=True)  # torch takes changed bytes


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


def test_a_full_disk_does_not_damage_the_previous_checkpoint(tmp_path, monkeypatch):
    path = tmp_path / "last.ckpt"
    write_checkpoint({"step": torch.full((4000,), 1.0)}, path)
    save = torch.save
    for room in (0, 100, 8000, 16500):
        with monkeypatch.context() as patch:
            full = partial(FullDisk, room=room)
            patch.setattr(torch, "save", lambda x, stream, full=full: save(x, full(stream)))  # pyright: ignore[reportArgumentType]
            with pytest.raises(
                TrainingError, match=rf"^{path}: cannot be written \(No space left on device\)"
            ):
                write_checkpoint({"step": torch.full((4000,), 2.0)}, path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["last.ckpt"]
    assert float(torch.load(path, weights_only=True)["step"].mean()) == 1.0


def test_other_errors_are_not_reported_as_errors_of_the_disk(tmp_path):
    with pytest.raises(AttributeError, match="pickle"):
        write_checkpoint({"step": lambda: 1}, tmp_path / "last.ckpt")
    assert not list(tmp_path.iterdir())


def test_checkpoints_of_earlier_versions_and_other_files_are_refused(finished, tmp_path):
    path = tmp_path / "best.ckpt"
    held = torch.load(finished / "best.ckpt", weights_only=True)
    assert read_checkpoint(finished / "best.ckpt", "try again").keys() == held.keys()
    for content, missing in (
        ([1], "state_dict"),
        ({key: held[key] for key in held if key != "encoding_start"}, "encoding_start"),
    ):
        torch.save(content, path)
        with pytest.raises(
            TrainingError, match=rf"^{path}: found no {missing}, [^\n]* earlier version; try again$"
        ):
            read_checkpoint(path, "try again")


def test_a_run_made_with_lightnings_trainer_starts_others_and_goes_on(tmp_path):
    """The folder `lightning` is such a run: 6 steps with an average of the weights."""
    run, config = tmp_path / "run", read_experiment(Path(__file__).parent / "lightning")
    shutil.copytree(Path(__file__).parent / "lightning", run)
    shutil.copyfile(run / "best.ckpt", run / "last.ckpt")
    decoder, origin = load_decoder(run)
    assert origin[1].startswith("e4e6c791")
    assert fit(config, tmp_path / "new", init_from=run, show=False).step == 6
    first = json.loads((tmp_path / "new" / "run.json").read_text())["init_from"]
    assert first["digest"] == digest(decoder) == origin[1]
    longer = replace(config, trainer=replace(config.trainer, token_budget=1024))
    assert fit(longer, run, show=False).step == 11
    assert load_decoder(run, "last")[1][1] != origin[1]


def test_weights_of_another_model_are_refused_in_one_line(experiment, decoder, tmp_path):
    wider = experiment["task"]["model"] | {"hidden": 24}
    other = build(DecoderConfig, wider).build()
    with pytest.raises(TrainingError, match=r"^[^\n]*weights of another model: size mismatch"):
        fill(decoder, {"state_dict": other.state_dict(), "average": {"mean": []}}, tmp_path)
    message = r"^[^\n]*another model: its hidden is 24, that of the config is 16; use the"
    with pytest.raises(TrainingError, match=message):
        start_from(decoder, other, tmp_path)


def test_styles_keep_their_weights_when_others_are_added():
    before = MultitrackRemiConfig(styles=("ballad", "jazz", "waltz")).build()
    after = MultitrackRemiConfig(styles=("ballad", "game", "jazz")).build()
    size, style = len(before.vocabulary), before.families.style
    sizes = {"vocabulary_size": size, "width": 8, "num_layers": 1, "num_heads": 1, "hidden": 8}
    events = {"closing": [[4, 5]], "hidden": 8}
    decoder = build(DecoderConfig, {**sizes, "events": events}).build()
    layers = (decoder.embedding, decoder.project_out, decoder.events.embedding)  # pyright: ignore[reportOptionalMemberAccess]
    first = [layer.weight.detach().clone() for layer in layers]
    keep_styles(decoder, before, after)
    for layer, weight in zip(layers, first, strict=True):
        moved = {0: 0, 1: 2, 2: 1}  # number of a style -> number whose weights it has
        for number in range(64):
            source = weight[style + moved.get(number, number)]
            torch.testing.assert_close(layer.weight[style + number], source, rtol=0, atol=0)
        torch.testing.assert_close(layer.weight[:style], weight[:style], rtol=0, atol=0)
