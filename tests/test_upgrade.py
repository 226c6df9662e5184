"""What version 1.0 wrote is read by all later 1.x: `tests/golden/version_1`."""

from __future__ import annotations

import json

import pytest
import torch

from app.compose import replay
from app.compose.models import load_music_model
from relpe.models import checkpoint
from tests.support.paths import GOLDEN_FOLDER
from tests.support.small_models import save_tiny_model

FOLDER = GOLDEN_FOLDER / "version_1"


@pytest.mark.parametrize("name", ["generate", "continue", "fill"])
def test_settings_ask_for_the_same_music(name):
    """Options that are added later may not change it."""
    text = (FOLDER / f"{name}.json").read_text("utf-8")
    recorded, read = json.loads(text), replay.read(text)
    after_prompt = "prompt_sha256" in recorded
    options = replay.chosen_options(read.options, after_prompt=after_prompt)
    assert options | recorded["options"] == options
    assert read.options.seed == recorded["seed"]
    for part in ("model", "model_sha256", "backend", "versions", "first_bar", "last_bar", "heard"):
        value = getattr(read, part) or None
        assert recorded.get(part) == (sorted(value) if isinstance(value, frozenset) else value)
    passage = recorded.get("passage", {})
    for part, value in passage.items():
        assert value == ([*getattr(read.passage, part)] if part == "tracks" else value)
    assert bool(passage) == (read.passage is not None)


def test_a_model_computes_the_same():
    model = load_music_model(FOLDER / "model")
    expected = json.loads((FOLDER / "logits.json").read_text("utf-8"))
    ids = torch.tensor([expected["ids"]])
    positions = torch.arange(ids.shape[1])[None, :, None].expand(-1, -1, model.decoder.num_axes)
    with torch.no_grad():
        logits, _ = model.decoder(ids, positions, model.decoder.init_state(1))
    computed = logits[0, -1, : len(expected["logits"])].double()
    torch.testing.assert_close(
        computed, torch.tensor(expected["logits"]).double(), atol=1e-4, rtol=0
    )
    settings = json.loads((FOLDER / "generate.json").read_text("utf-8"))
    assert settings["model_sha256"] == model.sha256


def test_names_of_released_models_lead_to_their_successor(tmp_path, monkeypatch, caplog):
    save_tiny_model(tmp_path / "relpe")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(checkpoint, "_PLACES", (tmp_path,))
    for name in ("piano", "groove", "piano"):
        assert checkpoint.find_checkpoint(name) == tmp_path / "relpe"
    assert [line.partition(";")[0] for line in caplog.messages] == [
        f"the model {name!r} is now 'relpe'" for name in ("piano", "groove")
    ]
    with pytest.raises(checkpoint.CheckpointError, match="no model 'drums'"):
        checkpoint.find_checkpoint("drums")
