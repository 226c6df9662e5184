"""Rules with biases for new pieces, and sampling with the logits of a test."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from relpe.decoding.sampling import SamplingOptions, draw
from tokenization.constraints.bar_limit import BarLimit
from tokenization.constraints.rule import Bias, ConstrainedGrammar
from tokenization.remi.multitrack import MultitrackRemi
from tokenization.remi.remi import PianoRemi
from tokenization.remi.vocabulary import (
    BAR,
    BOS,
    MULTITRACK_FAMILIES,
    PIANO_FAMILIES,
    TEMPO,
    TEMPOS_PER_OCTAVE,
    TIME_SIGNATURE,
    Families,
)

FAMILIES = {"piano": PIANO_FAMILIES, "multitrack": MULTITRACK_FAMILIES}
TOKENIZERS = {"piano": PianoRemi(), "multitrack": MultitrackRemi()}
Logits = Callable[[ConstrainedGrammar, Families], np.ndarray]


def rule_of(
    *biases: Bias,
    bars: int,
    seconds: float | None = None,
    name: str = "piano",
    four_four: bool = False,
) -> ConstrainedGrammar:
    """The rule of a piece from nothing.

    If `four_four`, a first bar of 4/4 has begun: its time signature and tempo are given.
    """
    grammar = TOKENIZERS[name].grammar(
        tempo="bar_line", time_signature=not four_four, end=False, write=False
    )
    rule = ConstrainedGrammar(
        grammar.advance(BOS), BarLimit(1, bars, seconds=seconds), tuple(biases)
    )
    if four_four:
        for token in (BAR, TIME_SIGNATURE + 7, TEMPO + TEMPOS_PER_OCTAVE * 3):
            rule = rule.advance(token)
    return rule


def flat(_: ConstrainedGrammar, families: Families) -> np.ndarray:
    """Equal logits for all tokens."""
    return np.zeros(families.size, np.float32)


def sample(
    rule: ConstrainedGrammar,
    seed: int = 0,
    logits: Logits = flat,
    name: str = "piano",
    most: int = 100_000,
) -> tuple[list[int], ConstrainedGrammar]:
    """Samples at most `most` tokens; returns them and the rule after them."""
    generator = np.random.Generator(np.random.PCG64(seed))
    options, tokens = SamplingOptions(top_p=1.0), []
    while rule.allowed.any() and len(tokens) < most:
        token = draw(logits(rule, FAMILIES[name]), rule.allowed, options, generator, rule.bias)
        tokens.append(token)
        rule = rule.advance(token)
    return tokens, rule


def piano_bar(*notes: tuple[int, int], tempo: str | None = None, velocity: int = 16) -> list[int]:
    """Tokens of a bar of piano notes, each given by its position and pitch."""
    ids = TOKENIZERS["piano"].vocabulary.ids
    tokens, at = [BAR], -1
    if tempo is not None:
        tokens.append(ids[f"Tempo_{tempo}"])
    for position, pitch in notes:
        if position != at:
            tokens.append(ids[f"Position_{position}"])
        at = position
        tokens += [ids[f"Pitch_{pitch}"], ids[f"Velocity_{velocity}"], ids["Duration_6"]]
    return tokens


A, B, C = ((0, 60), (12, 64)), ((0, 62), (6, 65)), ((0, 40),)
"""Notes of three bars, as arguments of `piano_bar`."""
