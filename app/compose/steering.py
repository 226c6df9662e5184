"""Steering: what a musician wants, as biases of the logits beside what the model likes.

A token with a bias of -4 is e^4 times less likely beside the others; what the rule forbids stays
forbidden, and what is likely enough comes all the same.

- Key: pitches outside it have -4, drums none.
- Density: a token that goes on to a later position, or to the next bar, has -g times the share of
  the rest of the bar that it passes over. g is 16 times what the bar lacks: the share of its time
  that has gone by, an eighth note after the last position, less the share of its notes that are
  written; it lies within -8 and 8. So who is behind stays near and who is ahead moves on. One more
  note where some stand already has g as well, between -3 and 3: less than moving on, since at one
  position the instruments come in a fixed order, and the last ones would fall silent.
- Presence, recall: who rests for too long, what the prompt played: see `tokenization`.
- Repetition: a token that goes on with a copy of earlier bars, see
  `tokenization.constraints.repetition`, has -strength times half the square of how often that was
  heard, at most -16 times strength.
- Cadence: in the last bar positions within its last beat have -12, and durations 2, which grows to
  8 for late notes: all of it where they reach the bar line or ring over it, else the share of the
  way that they reach.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from app.compose.keys import pitch_classes
from tokenization.constraints.repetition import Repetition
from tokenization.errors import TokenizerError
from tokenization.remi.vocabulary import (
    BAR,
    BAR_UNIT,
    DURATIONS,
    MIN_BPM,
    MULTITRACK_FAMILIES,
    PIANO_FAMILIES,
    POSITION,
    STEPS_PER_BEAT,
    TEMPO,
    Families,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from app.compose.new_bars import BarRule
    from app.compose.options import MusicOptions
    from tokenization.tokenizer import Grammar, Tokenizer

OUTSIDE_KEY = 4.0
DENSITY_GAIN, MOST_DENSITY, MOST_CROWD = 16.0, 8.0, 3.0
MOST_REPETITION = 16.0
LAST_BEAT, LONG, LONGER_LATE = 12.0, 2.0, 6.0
_ENDLESS = 1 << 60


@dataclass(frozen=True, eq=False)
class Steering:
    """What is wanted, for one vocabulary."""

    families: Families
    outside: NDArray[np.float64]
    """(v,), the bias by the key, read-only."""
    density: float
    repetition: float
    cadence: bool
    seconds: float | None
    """After which the music ends; None where bars are counted."""

    @classmethod
    def of(cls, options: MusicOptions, families: Families) -> Steering:
        """That of some options."""
        outside = np.zeros(families.size)
        if options.key is not None:
            pitches = np.arange(families.num_pitches) + families.lowest_pitch
            inside = np.isin(pitches % 12, list(pitch_classes(options.key)))
            outside[families.pitch : families.drum] = np.where(inside, 0, -OUTSIDE_KEY)
        outside.setflags(write=False)
        return cls(
            families,
            outside,
            options.density,
            options.repetition,
            options.ending == "cadence",
            options.seconds,
        )

    @property
    def wants_nothing(self) -> bool:
        """Whether all is left to the model."""
        wanted = self.outside.any() or self.density or self.repetition or self.cadence
        return not wanted and self.seconds is None


class Steered(NamedTuple):
    """A rule with a bias, and with an end where the seconds are over; immutable.

    The work for a token does not grow with the piece.
    """

    rule: BarRule
    steering: Steering
    repetition: Repetition | None
    position: int = 0
    """The last one in the bar."""
    notes: int = 0
    """In the bar so far."""
    bpm: int = 120
    seconds_before: float = 0.0
    """Of the bars that have ended."""

    @property
    def grammar(self) -> Grammar:
        """As the rule's."""
        return self.rule.grammar

    @property
    def finished(self) -> bool:
        """As the rule's."""
        return self.rule.finished

    @property
    def written_bar(self) -> int:
        """As the rule's."""
        return self.rule.written_bar

    @property
    def allowed(self) -> NDArray[np.bool_]:
        """As the rule's."""
        return self.rule.allowed

    @property
    def seconds(self) -> float:
        """Of the music up to the end of this bar, in the tempos that it has written itself."""
        return self.seconds_before + self.grammar.bar_length / STEPS_PER_BEAT * 60 / self.bpm

    @property
    def in_last_bar(self) -> bool:
        """Whether the next Bar would be one too many."""
        if self.steering.seconds is not None:
            return self.seconds > self.steering.seconds - 1e-6
        return self.grammar.bar == self.rule.last_bar

    @property
    def bias(self) -> NDArray[np.float64]:
        """What is added to the logits (v,)."""
        steering, allowed, length = self.steering, self.allowed, self.grammar.bar_length
        bias = steering.outside.copy()
        if (called := self.rule.bias) is not None:
            bias += called
        if length and allowed[BAR]:  # later positions may follow as well
            if steering.density:
                self._keep_pace(bias, length)
            if steering.cadence and self.in_last_bar:
                last_beat = max(length - STEPS_PER_BEAT, 1)
                bias[POSITION + last_beat : POSITION + length] -= LAST_BEAT
        elif steering.cadence and allowed[steering.families.duration] and self.in_last_bar:
            rest = max(length - self.position, 1)
            most = LONG + LONGER_LATE * self.position / length
            bias[steering.families.duration :] += most * np.minimum(DURATIONS / rest, 1)
        if self.repetition is not None:
            for token, times in self.repetition.copies:
                bias[token] -= steering.repetition * min(times**2 / 2, MOST_REPETITION)
        return bias

    def _keep_pace(self, bias: NDArray[np.float64], length: int) -> None:
        gone, rest = min((self.position + BAR_UNIT) / length, 1), length - self.position
        lack = DENSITY_GAIN * (gone - self.notes / self.steering.density)
        passes = max(min(lack, MOST_DENSITY), -MOST_DENSITY) * np.arange(1, rest + 1) / rest
        bias[POSITION + self.position + 1 : POSITION + length] -= passes[:-1]
        bias[BAR] -= passes[-1]
        crowd = max(min(lack, MOST_CROWD), -MOST_CROWD)
        bias[self.steering.families.program : self.steering.families.velocity] += crowd

    def advance(self, token: int) -> Steered:
        """The rule after `token`."""
        families, repetition = self.steering.families, self.repetition
        if token == BAR and self.in_last_bar:
            return self._replace(rule=self.rule._replace(finished=True))
        after = self._replace(
            rule=self.rule.advance(token),
            repetition=None if repetition is None else repetition.advance(token),
        )
        if token == BAR:
            return after._replace(position=0, notes=0, seconds_before=self.seconds)
        if POSITION <= token < TEMPO:
            return after._replace(position=token - POSITION)
        if TEMPO <= token < families.program:
            return after._replace(bpm=token - TEMPO + MIN_BPM)
        if families.pitch <= token < families.velocity:
            return after._replace(notes=self.notes + 1)
        return after


MusicRule: TypeAlias = "BarRule | Steered"


def steered(
    rule: BarRule,
    options: MusicOptions,
    tokenizer: Tokenizer,
    heard: Sequence[int] | NDArray[np.integer] = (),
) -> MusicRule:
    """A rule that steers as the options say; the rule itself where they leave all to the model.

    `heard` is what the model hears first, the opening of the first new bar included: copies of its
    bars are copies too. Raises TokenizerError where there is something to steer in other tokens
    than those of the released models.
    """
    names = tokenizer.vocabulary.names
    known = (f for f in (PIANO_FAMILIES, MULTITRACK_FAMILIES) if f.vocabulary.names == names)
    families = next(known, None)
    steering = Steering.of(options, families or PIANO_FAMILIES)
    if steering.wants_nothing:
        return rule
    if families is None:
        raise TokenizerError(
            f"the model has tokens of {tokenizer.config.kind}, expected piano_remi or "
            "multitrack_remi for key, density, repetition, seconds or a cadence; leave these or "
            "choose another model"
        )
    if steering.seconds is not None:
        rule = rule._replace(last_bar=_ENDLESS)
    tokens: list[int] = np.asarray(heard, np.int64).tolist()
    repetition = Repetition.after(families, tokens) if steering.repetition else None
    return Steered(rule, steering, repetition)
