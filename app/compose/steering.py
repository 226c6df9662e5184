"""Turns a musician's wishes into biases of the logits.

A token with a bias of -4 is e^4 times less likely relative to the others. Tokens that the grammar
forbids stay forbidden, and a token that is likely enough may be drawn against the bias. A steering
option consists of a field of `MusicOptions`, a file in `tokenization/constraints`, and a line here.
"""

from __future__ import annotations

from collections.abc import Sequence

from app.compose.options import MusicOptions
from tokenization.constraints.cadence import Cadence
from tokenization.constraints.density import Density
from tokenization.constraints.key import Key
from tokenization.constraints.repetition import Repetition
from tokenization.constraints.rule import Bias
from tokenization.errors import TokenizerError
from tokenization.remi.grammar import RemiGrammar
from tokenization.remi.vocabulary import PIANO_FAMILIES
from tokenization.tokenizer import Grammar, Tokenizer


def steer(
    options: MusicOptions, grammar: Grammar, tokenizer: Tokenizer, context: Sequence[int]
) -> tuple[Bias, ...]:
    """The biases that some options ask for; none if they leave everything to the model.

    `context` are the ids that the model has read and `grammar` is the state after them.

    Raises:
        TokenizerError: the options steer, and the model has a vocabulary that cannot be steered.
    """
    families = grammar.families if isinstance(grammar, RemiGrammar) else PIANO_FAMILIES
    biases: list[Bias] = []
    if options.key is not None:
        biases.append(Key.of(options.key, families))
    if options.density:
        biases.append(Density(options.density))
    if options.ending == "cadence":
        biases.append(Cadence())
    if options.repetition:
        biases.append(Repetition.after(families, context, options.repetition))
    if (biases or options.seconds) and not isinstance(grammar, RemiGrammar):
        raise TokenizerError(
            f"the model has tokens of {tokenizer.config.kind}, expected piano_remi or "
            "multitrack_remi for key, density, repetition, seconds or a cadence; leave these or "
            "choose another model"
        )
    return tuple(biases)
