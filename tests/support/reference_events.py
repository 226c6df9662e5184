"""A slow decoder with events: one event after another, token by token, without batches."""

from __future__ import annotations

import torch
from torch import Tensor

from relpe.models.decoder import Decoder


def logits_by_event(model: Decoder, tokens: list[int], coordinates: Tensor | None = None) -> Tensor:
    """Logits (l, v) after each of the tokens of one row.

    The trunk is the same model without events; each call reads one vector. `coordinates` (l, p) are
    further axes of the positions of the tokens.
    """
    events = model.events
    assert events is not None
    state = model.init_state(1)
    row, group, count, found = events.start, [], 0, []
    for index, token in enumerate(tokens):
        group.append(token)
        if bool(events.closes[token]):
            x = model.embedding.weight[group].sum(0)
            place = torch.tensor([[[count]]])
            if coordinates is not None:
                place = torch.cat([place, coordinates[None, index : index + 1]], -1)
            out, state = model.through_blocks(x[None, None], place, state)
            row, group, count = out[0, 0], [], count + 1
        place = min(len(group), events.config.most - 1)
        h = row + events.place_embedding.weight[place]
        for one in group:
            h = h + events.embedding.weight[one]
        h = h + events.feed_forward(events.norm(h))
        found.append(model.project_out(model.norm(h)))
    return torch.stack(found)
