"""Redrawing of random features, and the number of features in attention."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from relpe.attention.feature_maps import LONGEST_HELD, FavorConfig
from relpe.attention.linear.operation import LinearAttentionConfig
from relpe.models.checkpoint import CheckpointError
from relpe.models.config import from_plain
from tests.support.decoders import SINE, decoder

STEPS = st.integers(0, 10**7)
RUNS = st.integers(0, 2**31 - 1)
REDRAWS = st.one_of(
    st.builds(FavorConfig, redraw_interval=st.integers(1, 500)),
    st.builds(FavorConfig, redraw_probability=st.sampled_from([1e-4, 0.02, 0.3, 1.0])),
)


@given(step=STEPS, run=RUNS)
def test_by_default_features_are_redrawn_at_every_step(step: int, run: int) -> None:
    assert FavorConfig().last_redraw(step, run) == step
    assert decoder("sine relu").last_redraw(step, run) == step


@given(config=REDRAWS, step=STEPS, run=RUNS)
def test_features_are_held_until_the_next_redraw(config: FavorConfig, step: int, run: int) -> None:
    """A step has the features of the previous step or new ones, depending only on step and run."""
    last = config.last_redraw(step, run)
    assert last <= step
    assert config.last_redraw(last, run) == last
    assert config.last_redraw(last + (step - last) // 2, run) == last
    assert config.last_redraw(step + 1, run) in {last, step + 1}
    assert replace(config).last_redraw(step, run) == last
    assert config.last_redraw(0, run) == 0


def test_redraws_have_the_given_interval_or_probability() -> None:
    """Their number and spacing are those of independent steps, to 5 standard deviations."""
    config = FavorConfig(redraw_interval=40)
    assert [step for step in range(300, 400) if config.last_redraw(step, 5) == step] == [320, 360]
    steps = 4000
    for probability, run in ((0.004, 0), (0.05, 2**31 - 1), (0.5, 0)):
        config = FavorConfig(redraw_probability=probability)
        redraws = [step for step in range(50, 50 + steps) if config.last_redraw(step, run) == step]
        deviation = math.sqrt(steps * probability * (1 - probability))
        assert abs(len(redraws) - steps * probability) <= 5 * deviation
        together = sum(b - a == 1 for a, b in itertools.pairwise(redraws))
        expected = len(redraws) * probability
        assert abs(together - expected) <= 5 * math.sqrt(expected) + 2


def test_runs_redraw_at_different_steps() -> None:
    config = FavorConfig(redraw_probability=0.1)
    found = [tuple(config.last_redraw(step, run) for step in range(200)) for run in range(20)]
    assert len(set(found)) == 20


def test_the_search_for_the_last_redraw_ends() -> None:
    config = FavorConfig(redraw_probability=1e-5)
    assert config.last_redraw(3) == 0
    assert config.last_redraw(3 * LONGEST_HELD + 5) == 3 * LONGEST_HELD
    assert FavorConfig(redraw_probability=1.0).last_redraw(12_345) == 12_345


def test_invalid_redraw_settings_are_refused() -> None:
    changes: list[tuple[dict[str, float | int], str]] = [
        ({"redraw_interval": 0}, "redraw_interval is 0, expected at least 1"),
        ({"redraw_probability": 0.0}, "redraw_probability is 0.0, expected 1e-5 to 1"),
        ({"redraw_probability": 1.5}, "redraw_probability is 1.5"),
        ({"redraw_probability": math.nan}, "redraw_probability is nan"),
        ({"redraw_interval": 40, "redraw_probability": 0.05}, "expected only one of them"),
    ]
    for change, message in changes:
        with pytest.raises(CheckpointError, match=message):
            from_plain(FavorConfig, change)


@given(config=REDRAWS, step=st.integers(1, 10**6), run=st.integers(0, 99))
@settings(max_examples=10)
def test_noise_is_new_at_every_step_even_if_features_are_held(
    config: FavorConfig, step: int, run: int
) -> None:
    """As in training, seeds are a function of the step; here, twice the step."""
    config = replace(config, num_features=4)
    attention = LinearAttentionConfig(feature_map=config)
    model = replace(decoder("sine favor").config, attention=attention).build()
    states = [
        model.init_state(1, 2 * at, feature_seed=2 * model.last_redraw(at, run))
        for at in (step - 1, step)
    ]
    assert not torch.equal(states[0].encodings[0].sines, states[1].encodings[0].sines)
    projections = [[of.operation.projection for of in state.layers] for state in states]
    held = model.last_redraw(step, run) != step
    for before, after in zip(*projections, strict=True):
        assert torch.equal(before, after) == held
    assert not torch.equal(*projections[1])  # each layer has its own features


def test_the_seed_of_features_defaults_to_that_of_the_noise() -> None:
    model, seed = decoder("sine favor"), 2**31 - 1
    plain, given_too, other = (
        [of.operation.projection for of in model.init_state(1, seed, feature_seed=own).layers]
        for own in (None, seed, seed + 1)
    )
    assert all(map(torch.equal, plain, given_too))
    assert not any(map(torch.equal, plain, other))


@torch.no_grad()
def test_a_state_with_other_realizations_is_that_of_a_model_with_these() -> None:
    """No parameter depends on their number."""
    model, tokens = decoder("sine favor"), torch.randint(11, (2, 90))
    positions = torch.arange(90)[None, :, None]
    for number in (1, 19):
        found, _ = model(tokens, positions, model.init_state(2, 3, number))
        encoding = replace(SINE, num_realizations=number)
        built = replace(model.config, encoding=encoding).build()
        built.load_state_dict(model.state_dict())
        wanted, _ = built(tokens, positions, built.init_state(2, 3))
        assert torch.equal(found, wanted)
    with pytest.raises(ValueError, match="num_realizations is 0, expected at least 1"):
        model.init_state(1, num_realizations=0)
    with pytest.raises(ValueError, match="encoding rope has no random codes"):
        decoder("rope softmax").init_state(1, 0, 8)
