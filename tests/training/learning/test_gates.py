from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from relpe.models.pointer.config import (
    ALIGNMENTS,
    LENGTH_CLASSES,
    RANGES,
    BalanceConfig,
    GateConfig,
    PointerConfig,
)
from relpe.models.pointer.pointer import Pointer
from training.evaluation.likelihood import pointer_nats
from training.learning.gates import TABLES, examples, fit_gates, mixed_nats

SIZE = 24
UNIT = 2
GATES = GateConfig(
    similar=tuple(np.linspace(-2, 0, len(GateConfig.similar)).tolist()),
    exact=tuple(np.minimum(np.linspace(0, 12, len(GateConfig.exact)), 4).tolist()),
    alignment=(-1.0, 0.0, 0.5, 0.0, 1.0, 0.0),
    record=tuple(np.linspace(-1, 1, 10).tolist()),
    named=(0.0, -0.5, 1.0),
    family=(0.0, 0.5, -0.5),
)
CONFIG = PointerConfig(
    unit=UNIT, ignored=((20, SIZE),), names=(16, 20), families=(0, 3, 12), gates=GATES
)


def copied(seed, length, config=CONFIG):
    """Tokens drawn from the mixture of a uniform decoder and a pointer."""
    draw = np.random.default_rng(seed)
    uniform = np.zeros(SIZE, np.float32)
    pointer, tokens = Pointer(config), [UNIT]
    while len(tokens) < length:
        pointer.extend(tokens[-1:])
        mixed = np.exp(pointer.mix(uniform, np.arange(SIZE)))
        tokens.append(int(draw.choice(SIZE, p=mixed / mixed.sum())))
    return np.array(tokens, np.int64)


def decoded(pieces):
    """Nats of the tokens by the uniform decoder."""
    return [np.full(len(piece) - 1, np.log(SIZE)) for piece in pieces]


def tables(gates):
    return [torch.tensor(getattr(gates, name), dtype=torch.float64) for name in TABLES]


@pytest.fixture(scope="module")
def pieces():
    return [copied(seed, 500) for seed in range(6)]


@pytest.fixture(scope="module")
def fitted(pieces):
    return fit_gates(examples(CONFIG, pieces, decoded(pieces)), GATES)


def test_tokens_that_are_not_predicted_are_left_out(pieces):
    short = [piece[:150] for piece in pieces[:2]]
    whole, some = decoded(short), decoded(short)
    some[0][[0, 70, 148]] = np.nan
    some[1][9:30] = np.nan
    counted = ~np.isnan(np.concatenate(some))
    expected = mixed_nats(examples(CONFIG, short, whole), tables(GATES)).numpy()[counted]
    found = mixed_nats(examples(CONFIG, short, some), tables(GATES)).numpy()
    np.testing.assert_allclose(found, expected)
    short = [pieces[0][:1], pieces[0][:50]]  # a piece of one token has none
    given = examples(CONFIG, short, decoded(short))
    assert given.tokens.max() < len(given.nats) == 49


def test_examples_and_pieces_have_the_likelihood_of_the_mixture(pieces):
    draw = np.random.default_rng(0)
    short = [piece[:200] for piece in pieces[:2]]
    logits = [np.log(draw.dirichlet(np.ones(SIZE), len(piece) - 1)) for piece in short]
    nats = [-row[np.arange(len(row)), p[1:]] for row, p in zip(logits, short, strict=True)]
    expected = []
    for piece, rows in zip(short, logits, strict=True):
        pointer = Pointer(CONFIG)
        for token, target, row in zip(piece[:-1].tolist(), piece[1:], rows, strict=True):
            pointer.extend([token])
            mixed = pointer.mix(row.astype(np.float32), np.arange(SIZE))
            expected.append(np.logaddexp.reduce(mixed) - mixed[target])
    by_piece = pointer_nats(CONFIG, short, nats)
    np.testing.assert_allclose(np.concatenate(by_piece), expected, atol=1e-6)
    flat = mixed_nats(examples(CONFIG, short, nats), tables(GATES))
    np.testing.assert_allclose(flat, np.concatenate(by_piece), atol=1e-12)


def test_the_likelihood_ignores_the_balance_of_generation(pieces):
    balanced = replace(CONFIG, balance=BalanceConfig(strength=1.0, near=-1.0))
    one, other = (
        pointer_nats(config, pieces[:1], decoded(pieces[:1]))[0] for config in (CONFIG, balanced)
    )
    assert (one == other).all()


def test_a_fit_recovers_the_gates_that_sequences_were_drawn_from(fitted):
    fresh = [copied(seed, 500) for seed in (100, 101)]
    given = examples(CONFIG, fresh, decoded(fresh))
    with_fit, with_truth = (mixed_nats(given, tables(g)) for g in (fitted.gates, GATES))
    decoder = given.nats.mean().item()
    gained = decoder - with_truth.mean().item()
    assert gained > 0.3
    assert decoder - with_fit.mean().item() > 0.97 * gained
    # log-odds of frequent sources: the sums are determined, single tables are not
    pointer, pairs = Pointer(CONFIG), []
    for token in fresh[0][:-1].tolist():
        pointer.extend([token])
        of = pointer.sources()
        family = sum(first <= token for first in CONFIG.families) - 1
        long = np.flatnonzero(of.exact >= 3)
        pairs += [[_log_odds(g, of, long, family) for g in (fitted.gates, GATES)]]
    found, true = np.concatenate(pairs, 1)
    assert len(true) > 50
    assert np.abs(found - true).mean() < 0.4


def _log_odds(gates, of, places, family):
    return (
        np.array(gates.similar)[LENGTH_CLASSES[of.similar[places]]]
        + np.array(gates.exact)[LENGTH_CLASSES[of.exact[places]]]
        + np.array(gates.distance)[RANGES[places]]
        + np.array(gates.alignment)[ALIGNMENTS[places]]
        + np.array(gates.record)[of.records[places]]
        + np.array(gates.named)[of.named[places]]
        + gates.family[family]
    )


def test_gates_gain_on_the_tokens_to_which_they_were_fitted(pieces, fitted):
    nats = decoded(pieces)
    gained = np.mean([n.mean() for n in nats]) - fitted.nats_per_token
    assert gained > 0.3
    own = replace(CONFIG, gates=fitted.gates)
    mixed = pointer_nats(own, pieces, nats)
    assert np.concatenate(mixed).mean() == pytest.approx(fitted.nats_per_token, abs=1e-9)


def test_gates_cost_almost_nothing_without_repetition():
    draw = np.random.default_rng(0)
    noise = [draw.integers(3, SIZE, 400) for _ in range(3)]
    nats = decoded(noise)
    fit = fit_gates(examples(CONFIG, noise, nats), GATES)
    assert fit.nats_per_token < nats[0][0] + 1e-3


def test_a_fit_is_reproducible_and_ignores_earlier_gates(pieces):
    given = examples(CONFIG, [pieces[0][:300]], decoded([pieces[0][:300]]))
    other = GateConfig(family=(1.0, 2.0, 3.0))
    first, second = fit_gates(given, GATES), fit_gates(given, other)
    assert second.gates == first.gates
    assert fit_gates(given, GATES) == first
    assert all(round(x, 3) == x for name in TABLES for x in getattr(first.gates, name))


def test_a_token_does_not_depend_on_later_ones_nor_a_piece_on_others(pieces):
    nats = decoded(pieces[:2])
    whole = pointer_nats(CONFIG, pieces[:1], nats[:1])[0]
    for stop in (2, 3, 400):
        [part] = pointer_nats(CONFIG, [pieces[0][:stop]], [nats[0][: stop - 1]])
        np.testing.assert_array_equal(part, whole[: stop - 1])
    both = mixed_nats(examples(CONFIG, pieces[:2], nats), tables(GATES))
    np.testing.assert_allclose(both[: len(whole)], whole, atol=1e-12)


def test_several_draws_may_be_mixed_in_one_call(pieces):
    nats = np.random.default_rng(0).exponential(1, (3, len(pieces[0]) - 1))
    rows = pointer_nats(CONFIG, [pieces[0]] * 3, [*nats])
    np.testing.assert_array_equal(pointer_nats(CONFIG, pieces[:1], [nats])[0], rows)


def test_without_names_their_gate_is_not_fitted(pieces):
    config = replace(CONFIG, names=None)
    given = examples(config, pieces[:2], decoded(pieces[:2]))
    assert "named" not in given.sizes
    assert given.classes.shape[1] == len(TABLES) - 1
    gates = fit_gates(given, replace(GATES, named=(1.0, 2.0, 3.0))).gates
    assert gates.named == (1.0, 2.0, 3.0)
    assert gates.similar != GATES.similar
