"""Converts steering options to biases of the logits.

A token with a bias of -4 is e^4 times less likely relative to the others. Tokens that the grammar
forbids stay forbidden, and a token that is likely enough may be sampled despite its bias. A
steering option consists of a field of `MusicOptions`, a file in `tokenization/constraints`, and a
line here.
"""

from __future__ import annotations

from collections.abc import Sequence

from app.compose.options import MusicOptions
from tokenization.constraints.cadence import Cadence
from tokenization.constraints.density import Density
from tokenization.constraints.harmony import Harmony
from tokenization.constraints.key import Key
from tokenization.constraints.repetition import Repetition
from tokenization.constraints.rule import Bias
from tokenization.plan import PlannedChord
from tokenization.remi.grammar import RemiGrammar


def steer(
    options: MusicOptions,
    grammar: RemiGrammar,
    context: Sequence[int],
    chords: Sequence[tuple[PlannedChord, ...] | None] = (),
) -> tuple[Bias, ...]:
    """The biases of the steering options and of chords.

    `context` are the ids that the model has read, `grammar` is the state after them, and `chords`
    those that each new bar should have, see `asked_chords`.
    """
    families = grammar.families
    biases: list[Bias] = []
    if options.key is not None:
        biases.append(Key.of(options.key, families))
    if any(chords):
        biases.append(Harmony.of(chords))
    if options.density:
        biases.append(Density(options.density))
    if options.ending == "cadence":
        # of some seconds, it is not known which bar is the last
        known = chords if options.seconds is None else ()
        last = next((bar for bar in reversed(known) if bar is not None), ())
        biases.append(Cadence(last[-1].chord if last else None))
    if options.repetition:
        biases.append(Repetition.after(families, context, options.repetition))
    return tuple(biases)
