"""A direct implementation of the pointer, which recomputes every match for each token."""

from __future__ import annotations

import math
from typing import NamedTuple

from relpe.models.pointer.config import (
    LEAST_IMPOSED,
    LENGTH_CLASSES,
    MOST_IMPOSED,
    NUM_RECORDS,
    PointerConfig,
)


class Source(NamedTuple):
    token: int
    similar: int
    exact: int
    distance: int
    """Distance in tokens between the proposed token and the next token."""


class SlowPointer:
    """Keeps the whole sequence and recomputes everything from its beginning."""

    def __init__(
        self,
        config: PointerConfig,
        tokens: list[int],
        generated: int = 0,
        imposed: frozenset[int] = frozenset(),
    ) -> None:
        """The last `generated` tokens do not belong to the prompt.

        `imposed` are the places of tokens that were imposed.
        """
        self.config, self.tokens = config, tokens
        self.prompt, self.imposed = len(tokens) - generated, imposed

    def key(self, token: int) -> tuple[int, int]:
        """Tokens with the same key are equal in a tolerant match."""
        ranges = [(first, stop) for first, stop in self.config.ignored if first <= token < stop]
        return ranges[0] if ranges else (token, token + 1)

    def lengths(self, distance: int) -> tuple[int, int]:
        """Tolerant and exact length of the match with the tokens `distance` earlier."""
        similar = exact = 0
        for token, before in zip(self.tokens[distance:], self.tokens, strict=False):
            similar = similar + 1 if self.key(token) == self.key(before) else similar // 2
            exact = exact + 1 if token == before else 0
        return similar, exact

    def units_back(self, distance: int) -> int:
        """Class of the number of units that begin within the last `distance` tokens."""
        units = self.tokens[-distance:].count(-1 if self.config.unit is None else self.config.unit)
        return units if units < 64 else 64 + (units >= 128)

    def sources(self) -> dict[int, Source]:
        """The source of each class of distances in units, if it has one."""
        found: dict[int, Source] = {}
        for distance in range(1, min(len(self.tokens) - 1, self.config.reach) + 1):
            units, lengths = self.units_back(distance), self.lengths(distance)
            if lengths[0] and (units not in found or lengths[0] > found[units].similar):
                found[units] = Source(self.tokens[-distance], *lengths, distance)
        return found

    def named(self) -> int:
        """Class of the distance to the unit that the present one names; 0: none."""
        found = self.naming()[0]
        return found if found < 64 else 64 + (found >= 128)

    def naming(self) -> tuple[int, bool]:
        """Distance to the unit that the present one names, 0: none; whether it was imposed."""
        found, imposed = 0, False
        for place, token in enumerate(self.tokens):
            if token == self.config.unit:
                found = 0
            elif self.config.names and self.config.names[0] <= token < self.config.names[1]:
                found, imposed = token - self.config.names[0] + 1, place in self.imposed
        return found, found > 0 and imposed

    def records(self) -> dict[int, float]:
        """Share of the recent informative tokens that the source of each class proposed."""
        hits = dict.fromkeys(range(66), 0.0)
        tries = 0.0
        for count in range(1, len(self.tokens)):
            token = self.tokens[count]
            if self.is_ignored(token):
                continue
            kept = 1 - 1 / self.config.recent
            sources = SlowPointer(self.config, self.tokens[:count]).sources()
            for units in hits:
                hit = units in sources and sources[units].token == token
                hits[units] = kept * hits[units] + hit
            tries = kept * tries + 1
        return {units: hit / max(tries, 1) for units, hit in hits.items()}

    def usual_length(self) -> float:
        """Mean class of the longest exact match of a source, over the tokens of the prompt."""
        starts = [SlowPointer(self.config, self.tokens[:n]) for n in range(1, self.prompt + 1)]
        longest = [max((s.exact for s in start.sources().values()), default=0) for start in starts]
        return sum(int(LENGTH_CLASSES[length]) for length in longest) / max(len(longest), 1)

    def is_ignored(self, token: int) -> bool:
        """Whether the token is not informative."""
        return any(first <= token < stop for first, stop in self.config.ignored)

    def odds(self) -> dict[int, float]:
        """Odds of each proposed token, as in the formula."""
        gates, balance, records = self.config.gates, self.config.balance, self.records()
        family = sum(first <= self.tokens[-1] for first in self.config.families) - 1
        values: list[tuple[int, bool, float]] = []
        changes: list[float] = []
        usual = self.usual_length()
        for units, source in self.sources().items():
            class_ = units
            value = gates.similar[LENGTH_CLASSES[source.similar]]
            value += gates.exact[LENGTH_CLASSES[source.exact]]
            value += gates.distance[min(LENGTH_CLASSES[units], 12)]
            twos = 0  # number of factors 2 of the distance
            while units and units % 2 ** (twos + 1) == 0 and units < 64:
                twos += 1
            value += gates.alignment[0 if not units else min(twos, 4) + 1]
            if self.named() == class_ > 0:
                value += balance.named
            else:
                value += balance.near * (units < 4)
                value += balance.aligned * ((units in (4, 8, 12)) - (units < 64 and units % 2))
            share = records[units] * NUM_RECORDS
            value += gates.record[min(int(share + 1e-9), NUM_RECORDS - 1)]
            value += gates.family[family]
            value += gates.named[0 if not self.named() else 1 + (class_ == self.named())]
            generated = len(self.tokens) - source.distance >= self.prompt
            values.append((source.token, generated, math.exp(value)))
            place = sum(first <= source.token for first in self.config.families) - 1
            beyond = max(LENGTH_CLASSES[source.exact] - usual, 0)
            run = balance.run[place] * beyond if balance.run else 0.0
            changes.append((balance.proposed[place] if balance.proposed else 0.0) - run)
        apart = 0.0, 0  # odds and token of the source in a unit whose name was imposed
        if self.naming()[1] and self.named() in self.sources():
            index = list(self.sources()).index(self.named())
            token, _, value = values.pop(index)
            del changes[index]
            own = max(value * math.exp(balance.imposed), math.exp(LEAST_IMPOSED))
            apart = min(own, math.exp(MOST_IMPOSED)), token
        total = sum(value for _, _, value in values)
        bounded = min(math.exp(balance.strength) * math.sqrt(total), math.exp(balance.most))
        own = sum(value for _, generated, value in values if generated) * bounded / (total or 1)
        share = min(1, math.exp(balance.most_generated) / (own or 1))
        odds: dict[int, float] = {}
        for (token, generated, value), change in zip(values, changes, strict=True):
            value *= bounded / total * (share if generated else 1) * math.exp(change)
            odds[token] = odds.get(token, 0.0) + value
        if apart[0]:
            odds[apart[1]] = odds.get(apart[1], 0.0) + apart[0]
        return odds
