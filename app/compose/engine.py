"""Generates the pieces of one model side by side, for commands, page and batches alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.compose.piece import Draft
from relpe.decoding.generate import Generation

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from app.compose.models import MusicModel
    from app.compose.piece import Opening
    from relpe.decoding.generate import Sample
    from tokenization.constraints.rule import ConstrainedGrammar


class Engine:
    """Drafts that grow together; any may be added or removed while others continue.

    A draft depends only on its opening and seed, not on the others.
    """

    def __init__(self, model: MusicModel, max_rows: int | None = None) -> None:
        """At most `max_rows` drafts grow at once, the others wait; None for no limit."""
        self._generation: Generation[ConstrainedGrammar] = Generation(
            model.decoder, model.steps.make(), max_rows
        )
        self._drafts: dict[Sample[ConstrainedGrammar], Draft] = {}

    def __len__(self) -> int:
        """Number of drafts that are not finished."""
        return len(self._drafts)

    @property
    def has_room(self) -> bool:
        """Whether one more draft would begin at once."""
        return self._generation.has_room

    def add(self, opening: Opening, seeds: Sequence[int]) -> list[Draft]:
        """One draft for each seed. The opening is read once for all of them."""
        samples = self._generation.add(opening.request(seeds))
        drafts = [Draft(opening, sample) for sample in samples]
        self._drafts.update(zip(samples, drafts, strict=True))
        return drafts

    def remove(self, drafts: Iterable[Draft]) -> None:
        """Ends drafts early."""
        for draft in drafts:
            self._generation.remove(draft.sample)
            self._drafts.pop(draft.sample, None)

    def step(self) -> list[Draft]:
        """Reads a chunk of an opening or adds a token to every draft; returns finished drafts.

        An opening that cannot be read ends its own drafts, with an error in their `sample`.
        """
        return [self._drafts.pop(sample) for sample in self._generation.step()]
