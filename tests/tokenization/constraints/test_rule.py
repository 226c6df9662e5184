from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import strategies
from tests.support.guided import FAMILIES, rule_of, sample
from tests.support.strategies import MULTITRACK, PIANO
from tokenization.constraints.bar_limit import BarLimit, PlannedBar
from tokenization.constraints.cadence import Cadence
from tokenization.constraints.density import Density
from tokenization.constraints.key import KeyBias
from tokenization.constraints.presence import Presence
from tokenization.constraints.recall import Recall
from tokenization.constraints.repetition import Repetition
from tokenization.constraints.rule import (
    Bias,
    ConstrainedGrammar,
    biases_of_prompt,
    rule_after_prompt,
)
from tokenization.plan import BarPlan, Plan
from tokenization.remi.grammar import RemiGrammar
from tokenization.remi.multitrack import MultitrackRemi
from tokenization.remi.remi import PianoRemi
from tokenization.remi.vocabulary import BAR, PIANO_FAMILIES, Families
from tokenization.score import Score, Tempo, TimeSignature, Track


def all_biases(families: Families, density: float = 5.0) -> list[Bias]:
    repetition = Repetition.after(families, ())
    return [KeyBias.of("C", families), Density(density), Cadence(), repetition]


CHOICES = st.lists(st.booleans(), min_size=4, max_size=4)


@settings(deadline=None, max_examples=40)
@given(
    chosen=CHOICES,
    density=st.sampled_from([3.0, 40.0]),
    seconds=st.sampled_from([None, 5.0]),
    name=st.sampled_from(sorted(FAMILIES)),
    seed=st.integers(0, 99),
)
def test_biased_music_keeps_to_the_grammar(chosen, density, seconds, name, seed):
    """`advance` raises for a token that is not allowed, even with large biases."""
    every = all_biases(FAMILIES[name], density)
    biases = [bias for bias, wanted in zip(every, chosen, strict=True) if wanted]
    rule = rule_of(*biases, bars=3, seconds=seconds, name=name)
    tokens, rule = sample(rule, seed, name=name, most=400)
    if rule.finished and seconds is None:
        assert tokens.count(BAR) == 3 + 1
    if (bias := rule.bias) is not None:
        assert np.isfinite(bias).all()
        assert bias.shape == rule.allowed.shape


@settings(deadline=None, max_examples=20)
@given(name=st.sampled_from(sorted(FAMILIES)), seed=st.integers(0, 99))
def test_biases_add_up(name, seed):
    every = all_biases(FAMILIES[name])
    _, rule = sample(rule_of(*every, bars=3, name=name), seed, name=name, most=seed)
    total = np.zeros(FAMILIES[name].size)
    assert isinstance(rule.grammar, RemiGrammar)
    for bias in rule.biases:
        logits = bias.logits(rule.grammar, rule.limit)
        total += 0 if logits is None else logits
    np.testing.assert_allclose(0 if rule.bias is None else rule.bias, total)


def test_a_returned_bias_belongs_to_the_caller():
    rule = rule_of(*all_biases(PIANO_FAMILIES), bars=3, four_four=True)
    assert rule.bias is not None
    kept = rule.bias.copy()
    rule.bias[:] = np.nan
    np.testing.assert_array_equal(rule.bias, kept)


def test_without_biases_nothing_is_added():
    assert rule_of(bars=3).bias is None


def test_prompts_of_several_instruments_get_biases_and_a_solo_piano_none():
    notes = [(480 * at, 240, 60, 80) for at in range(16)]
    tracks = (Track.of(notes, 33), Track.of(notes, 48))
    score = Score(480, tracks, (Tempo(0, 90.0),), (TimeSignature(0, 4, 4),))
    kinds = {}
    for tokenizer in (MultitrackRemi(), PianoRemi()):
        ids = tokenizer.encode(score).ids[:-1]
        grammar, limit = tokenizer.grammar(end=False), BarLimit(0, 3)
        for presence, recall in ((1.0, 1.0), (1.0, 0.0), (0.0, 0.5), (0.0, 0.0)):
            rule = rule_after_prompt(ids, grammar, limit, presence=presence, recall=recall)
            assert rule.grammar == grammar.resume(ids)
            assert rule.limit == BarLimit(rule.grammar.bar, rule.grammar.bar + 3)
            name = type(tokenizer).__name__
            kinds[name, (presence, recall)] = [type(bias) for bias in rule.biases]
    assert kinds == {
        ("MultitrackRemi", (1.0, 1.0)): [Presence, Recall],
        ("MultitrackRemi", (1.0, 0.0)): [Presence],
        ("MultitrackRemi", (0.0, 0.5)): [Recall],
        ("MultitrackRemi", (0.0, 0.0)): [],
        **{("PianoRemi", strengths): [] for strengths in ((1, 1), (1, 0), (0, 0.5), (0, 0))},
    }


@settings(max_examples=30, deadline=None)
@given(score=strategies.scores(programs=(0, 33, 48)), seed=st.integers(0, 9))
def test_the_rule_after_a_prompt_allows_what_it_does_at_a_later_place(score, seed):
    ids = MultitrackRemi().encode(score, ends=False).ids
    bars = np.flatnonzero(ids == BAR)
    at = int(bars[seed % len(bars)])
    grammar = MultitrackRemi().grammar(end=False)
    rule = ConstrainedGrammar(grammar.resume(ids[: at + 1]), BarLimit(0, 10_000))
    for token in ids[at + 1 :].tolist():
        rule = rule.advance(token)
    np.testing.assert_array_equal(rule.allowed, grammar.resume(ids).allowed)


@pytest.mark.parametrize("tokenizer", [PIANO, MULTITRACK], ids=["piano-2", "multitrack-2"])
@pytest.mark.parametrize("is_planned", [False, True])
def test_limits_and_biases_work_with_version_2(tokenizer, is_planned):
    score = Score(12, (Track.of([(0, 12, 60, 64), (48, 12, 62, 64)]), Track.of([], is_drum=True)))
    bars = (BarPlan(), BarPlan(1))
    prompt = tokenizer.encode(score, Plan(bars) if is_planned else None, ends=False).ids
    grammar = tokenizer.grammar(tempo="never", end=False, write=False).resume(prompt)
    grammar = grammar.advance(BAR)
    planned = (PlannedBar(36, 36, 0), PlannedBar(48, 44, 1), PlannedBar(48, 48, 2))
    limit = BarLimit(grammar.bar, grammar.bar + 2, planned)
    biases = (
        *all_biases(tokenizer.families),
        *biases_of_prompt([*prompt.tolist(), BAR], grammar),
    )
    rule, made, draw = ConstrainedGrammar(grammar, limit, biases), [BAR], np.random.default_rng(1)
    while not rule.finished:
        logits = np.where(rule.allowed, draw.gumbel(size=tokenizer.families.size), -np.inf)
        logits += 0 if rule.bias is None else rule.bias
        logits[BAR] += 3 if rule.allowed[BAR] else 0
        made.append(int(logits.argmax()))
        rule = rule.advance(made[-1])
    assert isinstance(rule.grammar, RemiGrammar)
    assert len(rule.grammar.document.ringing) < 500
    document = tokenizer.decode_document([*prompt.tolist(), *made[:-1]])
    assert (document.plan is not None) == is_planned
    assert document.selection is None
    signatures = [(tick, numerator) for tick, numerator, _ in document.score.time_signatures]
    assert signatures == [(0, 4), (96, 3), (132, 4)]
