"""Converts steering options to biases of the logits.

A token with a bias of -4 is e^4 times less likely relative to the others. Tokens that the grammar
forbids stay forbidden, and a token that is likely enough may be sampled despite its bias. A
steering option consists of a field of `MusicOptions`, a file in `tokenization/constraints`, and a
line here.
"""

from __future__ import annotations

from collections.abc import Sequence

from app.compose.options import OPTIONS, STEERING, MusicOptions
from tokenization.constraints.cadence import Cadence
from tokenization.constraints.density import Density
from tokenization.constraints.harmony import Harmony
from tokenization.constraints.key import Key
from tokenization.constraints.repetition import Repetition
from tokenization.constraints.rule import Bias
from tokenization.errors import TokenizerError
from tokenization.plan import PlannedChord
from tokenization.remi.grammar import RemiGrammar
from tokenization.remi.vocabulary import PIANO_FAMILIES
from tokenization.tokenizer import Grammar, Tokenizer


def steer(
    options: MusicOptions,
    grammar: Grammar,
    tokenizer: Tokenizer,
    context: Sequence[int],
    chords: Sequence[tuple[PlannedChord, ...] | None] = (),
) -> tuple[Bias, ...]:
    """The biases of the steering options and of chords.

    `context` are the ids that the model has read, `grammar` is the state after them, and `chords`
    those that each new bar should have, see `asked_chords`.

    Raises:
        TokenizerError: the options require a grammar that the model's vocabulary does not have.
    """
    families = grammar.families if isinstance(grammar, RemiGrammar) else PIANO_FAMILIES
    biases: list[Bias] = []
    if options.key is not None:
        biases.append(Key.of(options.key, families))
    if any(chords):
        # a model that reads the chords in its plan needs less
        strength = 1.0 if families.has_plans else 2.0
        biases.append(Harmony.of(chords, strength))
    if options.density:
        biases.append(Density(options.density))
    if options.ending == "cadence":
        # of some seconds, it is not known which bar is the last
        known = chords if options.seconds is None else ()
        last = next((bar for bar in reversed(known) if bar is not None), ())
        biases.append(Cadence(last[-1].chord if last else None))
    if options.repetition:
        biases.append(Repetition.after(families, context, options.repetition))
    used = [
        name
        for name in ("seconds", "chords", "distance", *STEERING)
        if getattr(options, name) != OPTIONS[name].default
    ]
    if used and not isinstance(grammar, RemiGrammar):
        raise TokenizerError(
            f"the model has the vocabulary {tokenizer.config.kind}, expected piano_remi or "
            f"multitrack_remi for the options: {', '.join(used)}; leave these options out or "
            "choose another model"
        )
    return tuple(biases)
