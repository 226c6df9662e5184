"""Converts steering options to biases of the logits.

A token with a bias of -4 is e^4 times less likely relative to the others. Tokens that the grammar
forbids stay forbidden, and a token that is likely enough may be sampled despite its bias. A
steering option consists of a field of `MusicOptions`, a file in `tokenization/constraints`, and a
line here.
"""

from __future__ import annotations

from collections.abc import Sequence

from app.compose.options import MusicOptions
from tokenization.constraints.cadence import NEVER, TONIC, Cadence
from tokenization.constraints.density import Density
from tokenization.constraints.harmony import Harmony
from tokenization.constraints.key import KeyBias
from tokenization.constraints.repetition import Repetition
from tokenization.constraints.rule import Bias
from tokenization.plan import Key, PlannedChord
from tokenization.remi.grammar import RemiGrammar


def steer(
    options: MusicOptions,
    grammar: RemiGrammar,
    context: Sequence[int],
    chords: Sequence[tuple[PlannedChord, ...] | None] = (),
    key: Key | None = None,
) -> tuple[Bias, ...]:
    """Return the biases of steering options, of chords, and of the key in which the music ends.

    `context` are the ids that the model has read, `grammar` is the state after them, and `chords`
    those that each new bar should have, see `asked_chords`.
    """
    families = grammar.families
    biases: list[Bias] = []
    if options.key is not None:
        biases.append(KeyBias.of(options.key, families))
    if any(chords):
        biases.append(Harmony.of(chords))
    if options.density:
        biases.append(Density(options.density))
    if options.ending in ("cadence", "natural"):
        strength = NEVER if options.ending == "cadence" else TONIC
        biases.append(Cadence.after(context, families, key, strength))
    if options.repetition:
        biases.append(Repetition.after(families, context, options.repetition))
    return tuple(biases)
