"""A grammar with a limit and biases, which together are the rule for sampling."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property
from typing import NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from tokenization.constraints.bar_limit import BarLimit
from tokenization.constraints.presence import Presence
from tokenization.constraints.recall import Recall
from tokenization.constraints.register import Register
from tokenization.remi.grammar import After, RemiGrammar


class Bias(Protocol):
    """Makes tokens more or less likely, given the music so far; immutable."""

    def logits(self, grammar: RemiGrammar, limit: BarLimit) -> NDArray[np.float64] | None:
        """Return the bias (v,) that is added to the logits of the next token; None: no bias.

        `grammar` and `limit` are the states before that token. The caller may change the array.
        """
        ...

    def advance(self, token: int, grammar: RemiGrammar) -> Self:
        """Return the bias after `token`; `grammar` is the state before it."""
        ...


class _Parts(NamedTuple):
    grammar: RemiGrammar
    limit: BarLimit
    biases: tuple[Bias, ...] = ()


class ConstrainedGrammar(_Parts):
    """A grammar, a limit and biases; a rule for `relpe.decoding.sampling`."""

    @property
    def finished(self) -> bool:
        """Whether the music has ended."""
        return self.limit.finished

    @property  # a protocol of properties is not met by a cached one
    def allowed(self) -> NDArray[np.bool_]:
        """Mask (v,) of the tokens that may follow; all False once finished."""
        return self._allowed

    @cached_property
    def _allowed(self) -> NDArray[np.bool_]:
        return self.limit.allowed(self.grammar)

    @property
    def imposed(self) -> bool:
        """Whether the present bar is to repeat its source as closely as possible."""
        fixed = self.grammar.rules.bars.get(self.grammar.bar)
        return fixed is not None and fixed.exact

    @property
    def bias(self) -> NDArray[np.float64] | None:
        """The sum of all biases (v,); None: no bias.

        Where a bar's plan may end, its tokens have the largest bias of those that may follow
        instead, so that a bias towards notes does not shorten the plan.
        """
        total = None
        for bias in self.biases:
            logits = bias.logits(self.grammar, self.limit)
            if logits is not None:
                total = logits if total is None else total + logits
        if total is not None:
            self._lift_plan(total, self.grammar)
        return total

    def _lift_plan(self, bias: NDArray[np.float64], grammar: RemiGrammar) -> None:
        families = grammar.families
        if not After.BAR <= grammar.after <= After.LAST:
            return
        of_plan = self.allowed.copy()
        of_plan[: families.return_] = of_plan[families.write] = False
        others = self.allowed & ~of_plan
        if others.any():
            bias[of_plan] += bias[others].max()

    def advance(self, token: int) -> ConstrainedGrammar:
        """Return the rule after `token`. Raises ValueError for a token that the grammar forbids."""
        grammar, limit = self.grammar, self.limit.advance(token, self.grammar)
        if limit.finished:
            return self._replace(limit=limit)
        biases = self.biases
        if biases:
            biases = tuple([bias.advance(token, grammar) for bias in biases])
        return ConstrainedGrammar(grammar.advance(token), limit, biases)


def rule_after_prompt(
    context: NDArray[np.integer],
    grammar: RemiGrammar,
    limit: BarLimit,
    joining: Collection[int] = (),
    *,
    ranks: Collection[int] | None = None,
    presence: float = 1.0,
    recall: float = 1.0,
) -> ConstrainedGrammar:
    """Return the rule for new bars after a prompt of whole bars.

    The other arguments are those of `biases_of_prompt`.

    `context` are the ids up to the first new bar, whose Bar token is the last one, `grammar` is the
    initial state, and the bars of `limit` count from 0.
    """
    grammar = grammar.resume(context)
    first, last = grammar.bar + limit.first_bar, grammar.bar + limit.last_bar
    biases = biases_of_prompt(
        context, grammar, joining, ranks=ranks, presence=presence, recall=recall
    )
    return ConstrainedGrammar(grammar, limit._replace(first_bar=first, last_bar=last), biases)


def biases_of_prompt(
    ids: Sequence[int] | NDArray[np.integer],
    grammar: RemiGrammar,
    joining: Collection[int] = (),
    *,
    ranks: Collection[int] | None = None,
    presence: float = 1.0,
    recall: float = 1.0,
) -> tuple[Bias, ...]:
    """Return the biases that keep new music close to a prompt of several instruments.

    See `presence.py` and `recall.py`. `ids` is the prompt and `grammar` the state after it. A
    strength of 0 turns a bias off. Music of a single track has neither. `joining` are ranks of
    tracks that the prompt lacks and the new music should have; they keep to the ranges of their
    instruments, see `register.py`. `ranks` are those of the tracks that are written beside given
    ones; None: all tracks are written.
    """
    if grammar.families.only_track >= 0:
        return ()
    biases: list[Bias] = []
    if presence:
        biases.append(Presence.after(ids, grammar, presence, joining))
    if recall:
        biases.append(Recall.after(grammar.families, ids, recall, ranks))
    if joining:
        biases.append(Register.of(joining))
    return tuple(biases)
