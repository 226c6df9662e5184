"""Generates several pieces with one model at the same time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.compose.piece import Draft
from relpe.decoding.generate import Generation
from tokenization.measures.takes import take_seed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from app.compose.models import MusicModel
    from app.compose.piece import Opening
    from relpe.decoding.generate import Sample
    from tokenization.constraints.rule import ConstrainedGrammar


class Engine:
    """Generates drafts together; drafts may be added and removed at any time.

    A draft depends only on its opening and seed, not on other drafts.
    """

    def __init__(self, model: MusicModel, max_rows: int | None = None) -> None:
        """Generate at most `max_rows` drafts at a time, while the others wait; None: no limit."""
        self._generation: Generation[ConstrainedGrammar] = Generation(
            model.decoder, model.steps.make(), max_rows
        )
        self._drafts: dict[Sample[ConstrainedGrammar], Draft] = {}

    def __len__(self) -> int:
        """Return the number of unfinished takes of all drafts."""
        return len(self._drafts)

    @property
    def has_room(self) -> bool:
        """Whether another draft would start without waiting."""
        return self._generation.has_room

    def add(self, opening: Opening, seeds: Sequence[int]) -> list[Draft]:
        """Add one draft per seed; the model reads the opening once for all of them."""
        takes = range(opening.options.num_takes)
        take_seeds = [take_seed(seed, take) for seed in seeds for take in takes]
        samples = self._generation.add(opening.request(take_seeds))
        starts = range(0, len(take_seeds), len(takes))
        drafts = [Draft(opening, *samples[at : at + len(takes)]) for at in starts]
        self._drafts.update((sample, draft) for draft in drafts for sample in draft.samples)
        return drafts

    def remove(self, drafts: Iterable[Draft]) -> None:
        """Remove drafts before they are finished."""
        for draft in drafts:
            for sample in draft.stop():
                self._generation.remove(sample)
                self._drafts.pop(sample, None)

    def step(self) -> list[Draft]:
        """Read a chunk of an opening, or add a token to every draft. Returns finished drafts.

        If an opening cannot be read, its drafts finish with an error in their `sample`.
        """
        drafts = [self._drafts.pop(sample) for sample in self._generation.step()]
        drafts += self._decide()
        finished = [draft for draft in dict.fromkeys(drafts) if draft.done]
        for draft in finished:
            draft.rank()
        return finished

    def _decide(self) -> list[Draft]:
        """Have the takes of a draft go on from the best, once all have come to the same bar.

        Returns drafts whose best take is finished already: the others end with it.
        """
        ended: list[Draft] = []
        for draft in dict.fromkeys(self._drafts.values()):
            going = [sample for sample in draft.samples if not sample.done]
            waiting = [sample for sample in going if draft.waits(sample)]
            for sample in waiting:
                self._generation.pause(sample)
            if len(waiting) < len(going):
                continue
            best = draft.decide()
            if best.done:
                self.remove([draft])
                ended.append(draft)
            else:
                self._generation.go_on(waiting, best)
        return ended
