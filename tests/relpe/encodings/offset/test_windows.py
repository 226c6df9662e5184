from __future__ import annotations

import itertools
import json
import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from relpe.attention.windowed.attention import box_of, box_offsets, later_offsets
from relpe.attention.windowed.offset_scores import softmax_with_table
from relpe.encodings.base import OffsetTable
from relpe.encodings.offset.windows import Window, WindowConfig, group_sizes, in_box
from tests.support import reference_offsets
from tests.support.golden_siren import golden
from tests.support.grids import half_width

MODES = ["logit_multiply", "log_bias", "soft_threshold", "adaptive_ramp"]
SOFT = ["soft_threshold", "adaptive_ramp"]


def window(**options: Any) -> Any:
    return WindowConfig(**options).build(num_layers=2, num_heads=3).double()


def test_boxes_hold_the_offsets_of_the_masks_of_the_original() -> None:
    for grid, sizes in (
        *(((7,), (size,)) for size in (1, 3, 5, 7, 13)),
        ((4, 5), (3, 5)),
        ((4, 5), (1, 9)),
    ):
        places = reference_offsets.grid_positions(grid)
        offsets = reference_offsets.pair_offsets(places, places)
        name = f"{len(grid)}d_S{'x'.join(map(str, grid))}_m{'x'.join(map(str, sizes))}"
        expected = golden(f"span_mask/{name}")
        half_widths = [size // 2 for size in sizes]
        assert torch.equal(in_box(offsets, half_widths), expected)
        assert torch.equal(reference_offsets.span_mask(offsets, half_widths), expected)


@pytest.mark.parametrize("name", ["1d_S7", "2d_S4x5_raster", "2d_S4x5_product"])
def test_causal_masks(name: str) -> None:
    grid = [7] if name.startswith("1d") else [4, 5]
    order: Any = "product" if name.endswith("product") else "raster"
    places = reference_offsets.grid_positions(grid)
    offsets = reference_offsets.pair_offsets(places, places)
    expected = golden(f"causal/{name}")
    assert torch.equal(reference_offsets.causal_mask(offsets, order), expected)
    # the boxes of the fast version hold the same offsets
    box = box_of([n - 1 for n in grid], order)
    later = later_offsets(box, order)
    seen = box_offsets(box) if later is None else box_offsets(box)[~later]
    found = (offsets[:, :, None] == seen).all(-1).any(-1)
    assert torch.equal(found, expected)


@pytest.mark.parametrize("mode", SOFT)
def test_soft_windows_end_with_the_span(mode: str) -> None:
    made = window(mode=mode, width=(7.3,), ramp=5.0)
    (exact,) = made.current().exact[0][0]
    offsets = torch.arange(-40, 41, dtype=torch.float64)[:, None]
    values = made(offsets, 0).log_weight
    beyond = offsets[:, 0].abs() > exact
    assert (values[beyond] == -math.inf).all()
    assert (values[offsets[:, 0].abs() <= exact - 1] > -math.inf).all()
    assert values[40].abs().max() < 1e-12  # a query's own key has weight 1
    expected = (
        half_width(float(made.log_width[0].detach().exp()), 0.1) if mode == "soft_threshold" else 13
    )
    assert exact == expected


def attend(made: Window, span: int, *, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    q, k, v = torch.randn(3, 1, 60, 3, 4, dtype=torch.float64, generator=generator)
    places = -torch.arange(span, dtype=torch.float64)[:, None]
    factor, log_weight = made(places, 0)
    table = OffsetTable(factor=factor, log_weight=log_weight, span=span)
    return softmax_with_table(q, k, v, table)


@given(mode=st.sampled_from(SOFT), width=st.floats(1, 9), more=st.integers(1, 30))
def test_rounding_a_soft_span_up_changes_nothing(mode: str, width: float, more: int) -> None:
    made = window(mode=mode, width=(width,), ramp=4.0)
    (exact,) = made.current().exact[0][0]
    torch.testing.assert_close(
        attend(made, exact + 1), attend(made, exact + 1 + more), rtol=1e-12, atol=1e-12
    )


def change_at_border(mode: str, border: int, step: float) -> float:
    """Change of a loss as the width grows by 2 `step` and a key enters the window half-way."""
    made = window(mode=mode, ramp=4.0, block=1).eval()
    middle = border - 4.0 if mode == "adaptive_ramp" else border / math.sqrt(-2 * math.log(0.1))
    losses = []
    for width, reach in ((middle - step, border), (middle + step, border + 1)):
        with torch.no_grad():
            made.log_width.fill_(math.log(width))
            assert made.current().exact[0][0] == [reach]
            losses.append(float(attend(made, reach + 1).square().sum()))
    return abs(losses[1] - losses[0])


def test_loss_is_continuous_in_the_width_where_a_key_enters() -> None:
    """It is not with the original window."""
    for mode in SOFT:
        for border in (6, 13):
            coarse, fine = (change_at_border(mode, border, step) for step in (1e-4, 1e-7))
            assert 0 < fine < 2e-3 * coarse
    coarse, fine = (change_at_border("logit_multiply", 9, step) for step in (1e-4, 1e-7))
    assert fine > 0.5 * coarse > 0.01


@pytest.mark.parametrize("mode", MODES)
def test_gradients_of_the_width(mode: str) -> None:
    made = window(mode=mode, width=(6.03,), ramp=4.1, per_head=True)

    def loss(log_width: torch.Tensor) -> torch.Tensor:
        values = torch.func.functional_call(
            made, {"log_width": log_width}, (-torch.arange(9.0).double()[:, None], 0)
        )
        return torch.stack([x.exp().square() for x in values if x is not None])

    leaf = made.log_width.detach().clone().requires_grad_()
    assert torch.autograd.gradcheck(loss, (leaf,))


def test_soft_window_gradient_is_finite_at_the_border() -> None:
    # the border is exactly at an offset, whose weight is zero and its logarithm minus infinity
    made = window(mode="adaptive_ramp", width=(4.0,), ramp=4.0)
    with torch.no_grad():
        made.log_width.fill_(math.log(4.0))
    attend(made, 12).square().sum().backward()
    assert made.log_width.grad.isfinite().all()
    assert made.log_width.grad[0].abs() > 0


def test_penalty_pulls_widths_down() -> None:
    made = window(width=(20.0, 40.0), penalty=0.5, max_span=100)
    expected = 0.5 * math.sqrt(-2 * math.log(0.1)) * 30.0 / 100
    assert made.penalty().item() == pytest.approx(expected, rel=1e-6)
    made.penalty().backward()
    assert (made.log_width.grad > 0).all()


def set_width(made: Window, value: float) -> None:
    with torch.no_grad():
        made.log_width.fill_(math.log(value))


def test_training_refreshes_spans_at_intervals() -> None:
    made = window(width=(10.0,), block=16, span_refresh=5, max_span=200)
    made.advance()
    assert made.keys_per_head(0) == (33,) * 3  # 22 steps, rounded up to 32, plus the query itself
    set_width(made, 20.0)
    for _ in range(4):
        made.advance()
        assert made.keys_per_head(0)[0] == 33
    made.advance()
    assert made.keys_per_head(0)[0] == 49
    assert made.metrics()["outgrown_spans"] == 1.0
    # the span shrinks only if at least two blocks are unused
    set_width(made, 14.5)
    for _ in range(5):
        made.advance()
    assert made.current().exact[0][0] == [32]
    assert made.keys_per_head(0)[0] == 49
    set_width(made, 5.0)
    for _ in range(5):
        made.advance()
    assert made.keys_per_head(0)[0] == 17
    set_width(made, 500.0)
    for _ in range(5):
        made.advance()
    assert made.keys_per_head(0)[0] == 200


def test_evaluation_uses_the_spans_of_the_current_widths() -> None:
    made = window(width=(10.0,), span_refresh=1000, max_span=200)
    made.advance()
    set_width(made, 30.0)
    assert made.keys_per_head(0)[0] == 33
    assert made.eval().keys_per_head(0)[0] == 81
    assert made.train().keys_per_head(0)[0] == 33


def test_a_resumed_training_continues_with_its_spans() -> None:
    made, resumed = (window(width=(10.0,), span_refresh=3, max_span=200) for _ in range(2))
    made.advance()
    set_width(made, 30.0)
    resumed.load_state_dict(made.state_dict())
    resumed.load_span_state(json.loads(json.dumps(made.span_state())))  # plain values
    for _ in range(4):
        assert made.current() == resumed.current()
        made.advance()
        resumed.advance()
    assert made.current() == resumed.current()


@given(sizes=st.lists(st.integers(1, 50), min_size=1, max_size=7), groups=st.integers(1, 4))
def test_groups_of_sizes_cover_at_little_cost(sizes: list[int], groups: int) -> None:
    found = group_sizes(sizes, groups)
    assert len(set(found)) <= groups
    assert all(new >= old for new, old in zip(found, sizes, strict=True))
    values = sorted(set(sizes))
    best = min(
        sum(min(top for top in tops if top >= size) for size in sizes)
        for count in range(1, groups + 1)
        for tops in itertools.combinations(values, min(count, len(values)))
        if max(tops) == values[-1]
    )
    assert sum(found) == best


def test_metrics_report_the_receptive_field() -> None:
    made = window(width=(10.0, 20.0), max_span=200)
    assert made.metrics() == {
        "mean_span": (33 + 49) / 2,
        "receptive_field": 1.0 + 32 + 48,
        "outgrown_spans": 0.0,
    }


def test_frozen_widths_are_not_learned() -> None:
    assert window(learned=False).state_dict() == {}


def test_invalid_windows_are_refused() -> None:
    choices: list[dict[str, Any]] = [
        {"width": (0.0,)},
        {"width": (1.0, 2.0, 3.0)},
        {"threshold": 1.0},
        {"threshold": 0.0},
        {"acts_on": "position"},
        {"max_span": 0},
    ]
    for options in choices:
        with pytest.raises(ValueError, match=next(iter(options))):
            window(**options)
