"""What a pointer compares, its fitted gates, and their balance in generation."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

LONGEST = 2**15 - 2
"""Matches are counted up to this length, in tokens."""
NUM_DISTANCES = 66
"""Classes of distances in units: 0 to 63, 64 to 127, 128 and more."""
NUM_RECORDS = 10
"""Classes of track records: equal parts of 0 to 1."""
NUM_NAMINGS = 3
"""What the sequence has named, for a source: no unit, another unit, the unit of the source."""
NUM_LENGTHS = 26
"""Half-octave classes of lengths: 0, 1, 2, 3, 4-5, 6-7, 8-11, 12-15, ..., 6,144 and more."""
NUM_ALIGNMENTS = 6
"""Classes of distances by the largest power of two that divides them: distance 0, then 1, 2, 4, 8,
and 16 or more; distances of 64 and more count as odd."""
MOST_REACH, MOST_IDS = 2**20, 2**16
"""Limits of the reach, and of token ids."""
NUM_RANGES = 13
"""Half-octave classes of distances in units: 0, 1, 2, 3, 4-5, 6-7, 8-11, ..., 64 and more."""

FIRST_LENGTHS = [0, 1, *(2**octave * half // 2 for octave in range(1, 13) for half in (2, 3))]
LENGTH_CLASSES = np.searchsorted(FIRST_LENGTHS, np.arange(LONGEST + 1), side="right") - 1
"""Class of each length of a match."""
RANGES = np.minimum(LENGTH_CLASSES[:NUM_DISTANCES], NUM_RANGES - 1)
"""Class of each distance by its size."""
ALIGNMENTS = np.array([0, *(min(d & -d, 16).bit_length() for d in range(1, 64)), 1, 1])
"""Class of each distance by its alignment."""


@dataclass(frozen=True, kw_only=True)
class GateConfig:
    """Tables whose entries sum to the log-odds of a source against the decoder."""

    similar: tuple[float, ...] = tuple(0.3 * index - 6 for index in range(NUM_LENGTHS))
    """By class of the length of the tolerant match."""
    exact: tuple[float, ...] = (0.0,) * NUM_LENGTHS
    """By class of the length of the exact match at the same place."""
    distance: tuple[float, ...] = (0.0,) * NUM_RANGES
    """By class of the distance in units."""
    alignment: tuple[float, ...] = (0.0,) * NUM_ALIGNMENTS
    """By class of the alignment of that distance."""
    record: tuple[float, ...] = (0.0,) * NUM_RECORDS
    """By class of the track record."""
    named: tuple[float, ...] = (0.0,) * NUM_NAMINGS
    """By what the sequence has named: nothing, another unit, the unit of the source."""
    family: tuple[float, ...] = (0.0,)
    """By the family of the last token."""

    def __post_init__(self) -> None:
        for name, size in SIZES.items():
            if len(getattr(self, name)) != size:
                raise ValueError(f"{name} has {len(getattr(self, name))} entries, expected {size}")
        values = np.concatenate([np.ravel(getattr(self, one.name)) for one in fields(self)])
        if not np.isfinite(values).all() or values.max() > MOST_ODDS:
            raise ValueError(f"entries of the gates must be finite and at most {MOST_ODDS}")


SIZES = {
    "similar": NUM_LENGTHS,
    "exact": NUM_LENGTHS,
    "distance": NUM_RANGES,
    "alignment": NUM_ALIGNMENTS,
    "record": NUM_RECORDS,
    "named": NUM_NAMINGS,
}
"""Entries of the tables of a gate; `family` has one for each family."""
MOST_ODDS = 50.0
"""Largest entry of a gate, far above all that are fitted, so that exponentials are finite."""


@dataclass(frozen=True, kw_only=True)
class BalanceConfig:
    """What generation changes: log-odds added to the gates, their upper bounds, temperatures.

    Gates are fitted to real sequences, which never contain the model's own tokens. In generation a
    copy of a copy confirms itself, and a wrong token ends a return that a real sequence would have
    continued. The balance makes up for both, so that as much comes back as in real sequences.
    """

    strength: float = 0.0
    """Added to the log-odds of all sources together."""
    most: float = MOST_ODDS
    """Upper bound of these log-odds. However long a copy, the decoder can always end it."""
    most_generated: float = MOST_ODDS
    """Upper bound of the log-odds of all sources together that propose generated tokens, which are
    not part of the prompt. A phrase of the model's own then comes back varied, not note for note,
    as the decoder takes some of its tokens."""
    aligned: float = 0.0
    """Added at distances of 4, 8 and 12 units, and subtracted at odd ones below 64."""
    near: float = 0.0
    """Added at distances of less than four units."""
    named: float = 0.0
    """Added for the unit that the sequence has named, instead of `aligned` and `near`."""
    imposed: float = 4.0
    """Added to `named` for a unit whose name a rule has imposed. The source there is apart from the
    others: `strength` and the two bounds do not apply to it, and its log-odds are from
    `LEAST_IMPOSED` to `MOST_IMPOSED`."""
    proposed: tuple[float, ...] = ()
    """Added to the log-odds of what is proposed, by the family of the proposed token, after all
    bounds; empty: 0 for all. Harmony may then come back with other notes."""
    run: tuple[float, ...] = ()
    """Subtracted from the same log-odds for each class of length (half octave) by which the exact
    match is longer than the mean longest exact match of the prompt's tokens; empty: 0 for all. A
    copy becomes less likely the longer it lasts, unless the prompt is as repetitive."""
    temperature: tuple[float, ...] = ()
    """Factor of the temperature of sampling, by the family of the token; empty: 1 for all. Below 1,
    unlikely tokens of the family become rarer, and with them the family itself where others may
    come next too, unless it has the likeliest token."""

    def __post_init__(self) -> None:
        for name in LOG_ODDS:
            if not abs(getattr(self, name)) <= MOST_ODDS:
                raise ValueError(
                    f"{name} is {getattr(self, name)}, expected -{MOST_ODDS} to {MOST_ODDS}"
                )
        for name in ("proposed", "run"):
            if not all(abs(value) <= MOST_ODDS for value in getattr(self, name)):
                raise ValueError(
                    f"{name} is {getattr(self, name)}, expected values of -{MOST_ODDS} to "
                    f"{MOST_ODDS}"
                )
        least, most = TEMPERATURES
        for factor in self.temperature:
            if not least <= factor <= most:
                raise ValueError(f"temperature has the factor {factor}, expected {least} to {most}")


BY_FAMILY = ("proposed", "run", "temperature")
"""Fields of the balance that have a value for each family of tokens."""
LOG_ODDS = tuple(field.name for field in fields(BalanceConfig) if field.name not in BY_FAMILY)
"""Fields of the balance that are single log-odds."""
LEAST_IMPOSED, MOST_IMPOSED = 1.5, 6.0
"""Bounds of the log-odds of a source in a unit whose name was imposed. The lower one is for the
start of a unit, where little matches yet."""
TEMPERATURES = 0.1, 10.0
"""Smallest and largest factor of the temperature."""


@dataclass(frozen=True, kw_only=True)
class PointerConfig:
    """What a pointer compares, and its fitted gates."""

    reach: int = 16_384
    """Largest distance to a source, in tokens."""
    unit: int | None = None
    """Id of the token that begins a unit; None: the sequence is one unit, with one source."""
    ignored: tuple[tuple[int, int], ...] = ()
    """Ranges of ids, first and stop, whose differences a tolerant match ignores."""
    names: tuple[int, int] | None = None
    """Range of ids, first and stop, that name an earlier unit: the first id names the unit before
    the present one, the next id the unit before that, and so on. Sources in that unit have another
    gate until the present unit ends."""
    families: tuple[int, ...] = (0,)
    """First id of each family of tokens, ascending from 0."""
    recent: int = 64
    """Time constant of the track record, in informative tokens (those outside `ignored`)."""
    gates: GateConfig = GateConfig()
    balance: BalanceConfig = BalanceConfig()
    """Of generation; likelihood is measured without it."""

    def __post_init__(self) -> None:
        for name, most in (("reach", MOST_REACH), ("recent", MOST_REACH)):
            if not 1 <= getattr(self, name) <= most:
                raise ValueError(f"{name} is {getattr(self, name)}, expected 1 to {most}")
        if self.unit is not None and self.unit < 0:
            raise ValueError(f"unit is {self.unit}, expected an id of at least 0")
        firsts, stops = [first for first, _ in self.ignored], [stop for _, stop in self.ignored]
        overlap = any(a > b for a, b in zip([0, *stops], firsts, strict=False))
        if overlap or any(a >= b for a, b in self.ignored):
            raise ValueError(f"ignored is {self.ignored}, expected ascending ranges of ids")
        if self.names is not None and not 0 <= self.names[0] < self.names[1]:
            raise ValueError(f"names are {self.names}, expected the first id and the stop")
        if self.families[:1] != (0,) or list(self.families) != sorted(set(self.families)):
            raise ValueError(f"families are {self.families}, expected ids ascending from 0")
        if len(self.gates.family) != len(self.families):
            raise ValueError(
                f"gates.family has {len(self.gates.family)} entries, expected one for each of the "
                f"{len(self.families)} families"
            )
        for name in BY_FAMILY:
            entries = len(getattr(self.balance, name))
            if entries not in (0, len(self.families)):
                raise ValueError(
                    f"balance.{name} has {entries} entries, expected one for each of the "
                    f"{len(self.families)} families, or none"
                )

    def check(self, vocabulary_size: int) -> None:
        """Raise a ValueError if ids of the config are not in a vocabulary, or it is too large."""
        if vocabulary_size > MOST_IDS:
            raise ValueError(
                f"vocabulary_size is {vocabulary_size}, expected at most {MOST_IDS} with a pointer"
            )
        unit = 0 if self.unit is None else self.unit
        ranges = (*self.ignored, self.names or (0, 1))
        largest = max(unit, *self.families, *(stop - 1 for _, stop in ranges))
        if largest >= vocabulary_size:
            raise ValueError(
                f"pointer has the id {largest}, expected ids below vocabulary_size, "
                f"{vocabulary_size}"
            )
