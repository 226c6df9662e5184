"""Positions of the tokens of a batch."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from tokenization.remi.documents.coordinates import Coordinates
from tokenization.remi.vocabulary import Families


def positions_of(tokens: Tensor, num_axes: int, families: Families | None = None) -> Tensor:
    """Return positions (1 or b, l, p) of tokens (b, l): the index, then the first of `AXES`.

    With one axis, they are the same for all rows, and only the index. Each row is the beginning of
    what the model reads: bars are counted from there; see `Coordinates`.

    Raises:
        ValueError: there are several axes, but no `families` to read them by.
    """
    index = torch.arange(tokens.shape[1], device=tokens.device)[None, :, None]
    if num_axes == 1:
        return index
    if families is None or num_axes > 1 + len(AXES):
        raise ValueError(
            f"the model reads {num_axes} axes of positions, but the tokens have "
            f"{1 if families is None else 1 + len(AXES)}"
        )
    rows = tokens.cpu().numpy()
    read = np.stack([Coordinates.before(row, families).read(row)[0] for row in rows])
    coordinates = torch.from_numpy(read[..., : num_axes - 1]).to(tokens.device)
    return torch.cat([index.expand(len(tokens), -1, -1), coordinates], -1)


AXES = ("bar", "place", "chord", "section")
"""The axes of positions after the index; the last two are labels."""
