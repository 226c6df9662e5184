"""A bias that brings back instruments that have rested longer than in the prompt.

In music that is sampled note by note, an instrument may rest for some bars by chance. The rest is
then part of the context, and a model may continue it for the whole piece.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenization.constraints.bar_limit import BarLimit
from tokenization.remi.decode import Tokens, read_bars, read_notes
from tokenization.remi.grammar import After, RemiGrammar
from tokenization.remi.vocabulary import BAR, NUM_PARTS

LONGEST_REST = 2
"""Bars after which a track is brought back even if it rested longer in the prompt."""
GAIN = 12.0
"""Bias in the first bar in which a track is brought back, and its growth per further bar."""
MOST = 24.0
"""Maximum of the bias."""
AGAINST_EMPTY = 0.25
"""Share of the bias that applies against ending an empty bar while a track is brought back."""


class Presence(NamedTuple):
    """A bias towards tracks of the prompt that have rested for too long.

    A track rests in a bar if none of its notes begins or sounds in it.
    """

    longest: dict[int, int]
    """By rank: number of bars for which a track may rest, which is its longest rest in the prompt,
    but at least one and at most `LONGEST_REST`; 0 for a track that joins."""
    rests: dict[int, int]
    """By rank: number of bars before this one in which the track has rested."""
    played: frozenset[int] = frozenset()
    """Ranks of the tracks that play in this bar."""
    strength: float = 1.0
    """Factor of the bias."""

    @classmethod
    def after(
        cls,
        ids: Sequence[int] | NDArray[np.integer],
        grammar: RemiGrammar,
        strength: float = 1.0,
        joining: Collection[int] = (),
    ) -> Presence:
        """Return the bias after a prompt; `grammar` is the state in the first new bar.

        Only tracks that the grammar allows to play are brought back. Those with the ranks `joining`
        are brought in at once, although they do not play in the prompt.
        """
        families, ranks = grammar.families, grammar.rules.tracks
        tokens = Tokens.of(ids, families)
        bars = read_bars(tokens)
        notes = read_notes(tokens, bars, families)
        starts = bars.lines[:-1]
        first = np.searchsorted(starts, notes.onsets, side="right") - 1
        last = np.searchsorted(starts, notes.onsets + notes.durations, side="left") - 1
        longest = dict.fromkeys(joining, 0)
        rests = dict.fromkeys(joining, 0)
        played: set[int] = set()
        now = len(starts) - 1
        for rank in np.unique(notes.keys >> 7).tolist():
            if ranks is not None and rank not in ranks:
                continue
            of_track = notes.keys >> 7 == rank
            change = np.zeros(now + 2, np.int64)  # sounding notes, minus those in the previous bar
            np.add.at(change, first[of_track], 1)
            np.add.at(change, np.minimum(last[of_track], now) + 1, -1)
            plays = change.cumsum()[: now + 1] > 0
            playing_bars = np.flatnonzero(plays[:now])
            gaps = np.diff(playing_bars, prepend=-1, append=now) - 1
            longest[rank] = min(max(int(gaps.max()), 1), LONGEST_REST)
            rests[rank] = int(gaps[-1])
            if plays[now]:
                played.add(rank)
        return cls(longest, rests, frozenset(played), strength)

    def logits(self, grammar: RemiGrammar, limit: BarLimit) -> NDArray[np.float64] | None:
        """See `Bias.logits`."""
        del limit
        bias_of_late = {
            rank: self.strength * min(GAIN * (rest - self.longest[rank] + 1), MOST)
            for rank, rest in self.rests.items()
            if rest >= self.longest[rank] and rank not in self.played
        }
        if not bias_of_late:
            return None
        families, bias = grammar.families, np.zeros(grammar.families.size)
        if grammar.position < 0:  # a Position must come before a track
            bias[BAR] = -AGAINST_EMPTY * max(bias_of_late.values())
        # in this order, first parts overwrite others
        for rank, strength in sorted(bias_of_late.items(), reverse=True):
            program, part = divmod(rank, NUM_PARTS)
            if grammar.after is not After.PROGRAM:
                token = families.program + program
                bias[token] = max(bias[token], strength)
            elif part and grammar.track == rank - part:
                bias[families.part + part - 1] = strength
            elif not part and grammar.track == rank:  # without a Part, the first part plays
                bias[families.part : families.pitch] = -strength
        return bias

    def advance(self, token: int, grammar: RemiGrammar) -> Presence:
        """See `Bias.advance`."""
        families = grammar.families
        if token == BAR:
            end = grammar.bar_start + grammar.bar_length
            return self._replace(
                rests={
                    rank: 0 if rank in self.played else rest + 1
                    for rank, rest in self.rests.items()
                },
                played=frozenset(rank for rank, _, until in grammar.sounding if until > end),
            )
        if families.pitch <= token < families.velocity and grammar.track not in self.played:
            return self._replace(played=self.played | {grammar.track})
        return self
