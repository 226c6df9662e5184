"""Events: groups of tokens that pass the blocks as one position, and the decoder of their tokens.

An event is a group of consecutive tokens, such as those of a note. Certain tokens close an event;
the last token alone tells whether it does. The blocks have one position for each event: their input
is the sum of the embeddings of its tokens, and their output is its *row*. The local decoder
predicts the tokens of the next event in order, from the row and the tokens of that event so far:

    h = row + sum of own embeddings of the tokens of the open event + embedding of their number
    h + feed-forward(norm h)

Every token is predicted given all tokens before it, so that the likelihood of a sequence is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn

from relpe.checks import Checked, at_least
from relpe.models.blocks import FeedForward

MULTIPLE_ON_GPU = 64
"""On a GPU, the number of events of a call is padded to a multiple of this."""


@dataclass(frozen=True, kw_only=True)
class EventsConfig(Checked):
    """Events, which pass the blocks as one position, and the decoder of their tokens."""

    closing: tuple[tuple[int, int], ...] = ()
    """Ranges of the token ids that close an event, [first, stop) in ascending order. Training fills
    them in from the tokenizer if they are empty."""
    hidden: int = 704
    """Width of the hidden layer of the local decoder."""
    most: int = 8
    """Number of places in an event that the local decoder distinguishes; later places count as the
    last."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(1, hidden=self.hidden, most=self.most)
        flat = [-1, *(number for pair in self.closing for number in pair)]
        ascending = all(a <= b for a, b in pairwise(flat))
        if not ascending or any(a >= b for a, b in self.closing) or min(flat[1:], default=0) < 0:
            raise ValueError(f"closing is {self.closing}, expected ascending ranges of ids")

    @staticmethod
    def ranges(ids: Iterable[int]) -> tuple[tuple[int, int], ...]:
        """Return the ranges that consist of these ids, for `closing`."""
        ranges: list[tuple[int, int]] = []
        for one in sorted(set(ids)):
            if ranges and ranges[-1][1] == one:
                ranges[-1] = ranges[-1][0], one + 1
            else:
                ranges.append((one, one + 1))
        return tuple(ranges)

    def check(self, vocabulary_size: int) -> None:
        """Raise a ValueError if no id of a vocabulary closes an event, or others do."""
        if not self.closing:
            raise ValueError("closing is empty, expected the ids of tokens that close an event")
        if self.closing[-1][1] > vocabulary_size:
            raise ValueError(
                f"closing has ids up to {self.closing[-1][1] - 1}, but the vocabulary has "
                f"{vocabulary_size}"
            )


class EventState(NamedTuple):
    """State of the last event of each row, which may be open."""

    row: Tensor
    """(b, m): output of the blocks for the last closed event."""
    inputs: Tensor
    """(b, m): sum of the embeddings of the tokens of the open event."""
    local: Tensor
    """(b, m): sum of their embeddings in the local decoder."""
    size: Tensor
    """(b,) int64: number of these tokens."""
    closed: Tensor
    """(b,) int64: number of closed events."""

    def map_rows(self, change: Callable[[Tensor], Tensor]) -> EventState:
        """Return the state with `change` applied to each of its tensors."""
        return EventState(*map(change, self))


class Grouped(NamedTuple):
    """The tokens (b, l) of a call, grouped into events.

    n is the largest number in a row, on GPUs rounded up.
    """

    inputs: Tensor
    """(b, n, m): of the blocks, for the events that are closed in the call."""
    rest: Tensor
    """(b, m): sum of the embeddings of the tokens of the event that is open at the end."""
    lengths: Tensor
    """(b,) int64: number of events of each row."""
    closed: Tensor
    """(b, l) int64: number of events that are closed up to each token, itself included."""
    last: Tensor
    """(b, l) int64: place of the last closing token up to each token; -1: none in this call."""

    @property
    def padded(self) -> Tensor | None:
        """The lengths, None if all rows have the same."""
        alike = bool((self.lengths == self.inputs.shape[1]).all())
        return None if alike else self.lengths


class Events(nn.Module):
    """Groups tokens into events and predicts their tokens; see `EventsConfig`."""

    closes: Tensor

    def __init__(self, config: EventsConfig, *, vocabulary_size: int, width: int) -> None:
        super().__init__()
        config.check(vocabulary_size)
        self.config = config
        closes = torch.zeros(vocabulary_size, dtype=torch.bool)
        for first, stop in config.closing:
            closes[first:stop] = True
        self.register_buffer("closes", closes, persistent=False)
        self.start = nn.Parameter(torch.zeros(width))
        self.embedding = nn.Embedding(vocabulary_size, width)
        self.place_embedding = nn.Embedding(config.most, width)
        self.norm = nn.LayerNorm(width)
        self.feed_forward = FeedForward(width, config.hidden)

    def init_state(self, batch_size: int) -> EventState:
        """Return the state before the first token."""
        row = self.start.expand(batch_size, -1)
        none = torch.zeros_like(row)
        zeros = torch.zeros(batch_size, dtype=torch.int64, device=row.device)
        return EventState(row, none, none, zeros, zeros)

    def group(self, tokens: Tensor, embedded: Tensor, state: EventState) -> Grouped:
        """Return the tokens (b, l) and their embeddings (b, l, m), grouped into events."""
        closes = self.closes[tokens]
        closed = closes.cumsum(1)
        lengths = closed[:, -1]
        most = int(lengths.max())
        if tokens.is_cuda:  # few different shapes, for which kernels are compiled and tuned
            most = -(-most // MULTIPLE_ON_GPU) * MULTIPLE_ON_GPU if most > 1 else most
        held = torch.cat(
            [state.inputs[:, None], state.inputs.new_zeros(len(tokens), most, embedded.shape[-1])],
            1,
        )
        # the tokens of the open event are added after the last closed event of the row
        sums = held.flatten(0, 1).index_add(
            0, _flat(closed - closes.long(), most + 1), embedded.flatten(0, 1).to(held.dtype)
        )
        sums = sums.view_as(held)
        places = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
        last = places.where(closes, -1).cummax(1).values
        return Grouped(sums[:, :most], _at(sums, lengths), lengths, closed, last)

    def positions(self, positions: Tensor, grouped: Grouped, state: EventState) -> Tensor:
        """Return positions (1 or b, n, p) of events: number, and other axes of their last token.

        Takes the positions (1 or b, l, p) of the tokens.
        """
        most = grouped.inputs.shape[1]
        count = state.closed[:, None] + torch.arange(most, device=positions.device)
        if bool((count == count[:1]).all()):
            count = count[:1]
        count = count[..., None].to(positions.dtype)
        if positions.shape[-1] == 1:
            return count
        rows, length = grouped.closed.shape
        ends = torch.zeros(rows, most, dtype=torch.int64, device=positions.device)
        places = torch.arange(length, device=positions.device)
        row, place = (grouped.last == places).nonzero(as_tuple=True)
        ends[row, grouped.closed[row, place] - 1] = place
        others = positions.expand(rows, -1, -1)[..., 1:]
        others = others.gather(1, ends[..., None].expand(-1, -1, others.shape[-1]))
        return torch.cat([count.expand(rows, -1, -1), others], -1)

    def forward(
        self, tokens: Tensor, rows: Tensor, grouped: Grouped, state: EventState
    ) -> tuple[Tensor, EventState]:
        """Return outputs (b, l, m) that predict the token after each of `tokens`, and the state.

        `rows` (b, n, m) are the outputs of the blocks.
        """
        rows = torch.cat([state.row[:, None].to(rows.dtype), rows], 1)
        row = _gathered(rows, grouped.closed)
        # differences of running sums; in float64, so that they are exact in any split
        vectors = self.embedding(tokens)
        running = vectors.double().cumsum(1)
        before = torch.cat([-state.local[:, None].double(), running], 1)
        local = running - _gathered(before, grouped.last + 1)
        local = local.to(torch.promote_types(vectors.dtype, state.local.dtype))
        size = torch.arange(tokens.shape[1], device=tokens.device) - grouped.last
        size = size + state.size[:, None].where(grouped.last < 0, 0)
        place = self.place_embedding(size.clamp(max=self.config.most - 1))
        out = row + local + place
        state = EventState(
            _at(rows, grouped.lengths),
            grouped.rest,
            local[:, -1],
            size[:, -1],
            state.closed + grouped.lengths,
        )
        return out + self.feed_forward(self.norm(out)), state


def _flat(index: Tensor, size: int) -> Tensor:
    """Turn indices (b, l) into rows of `size` into indices (b * l,) of the rows end to end."""
    return (index + size * torch.arange(len(index), device=index.device)[:, None]).flatten()


def _gathered(x: Tensor, index: Tensor) -> Tensor:
    """Return the vectors of x (b, n, m) at `index` (b, l): (b, l, m)."""
    return x.flatten(0, 1)[_flat(index, x.shape[1])].view(*index.shape, -1)


def _at(x: Tensor, index: Tensor) -> Tensor:
    """Return the vector of each row of x (b, n, m) at `index` (b,): (b, m)."""
    return x[torch.arange(len(x), device=x.device), index]
