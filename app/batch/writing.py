"""Clips that one model generates side by side: as one ends, the next one enters."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from app.compose.engine import Engine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from app.batch.clips import Clip, Source
    from app.compose.models import MusicModel
    from app.compose.piece import Draft, Opening


class Writing:
    """An engine and its clips; a prompt is read when there is room for the first of its clips."""

    def __init__(
        self,
        model: MusicModel,
        clips: Sequence[Clip],
        opening_of: Callable[[Source], Opening | None],
        width: int,
    ) -> None:
        """Clips of a source are neighbours; those whose `opening_of` is None are left out."""
        self._engine = Engine(model, width)
        self._clips: dict[Draft, Clip] = {}
        self._sources = ((s, list(own)) for s, own in groupby(clips, lambda c: c.source))
        self._opening_of = opening_of

    @property
    def drafts(self) -> list[Draft]:
        """Clips that are not finished."""
        return list(self._clips)

    def steps(self, stop: Callable[[], bool]) -> Iterator[list[tuple[Clip, Draft]]]:
        """The clips that got done, after each step; ends with the last one, or when `stop` says."""
        while not stop():
            while self._engine.has_room and (following := next(self._sources, None)):
                source, clips = following
                if (opening := self._opening_of(source)) is not None:
                    drafts = self._engine.add(opening, [clip.seed for clip in clips])
                    self._clips.update(zip(drafts, clips, strict=True))
            if not self._clips:
                return
            done = self._engine.step()
            for draft in done:
                if draft.sample.error is not None:
                    raise draft.sample.error
            yield [(self._clips.pop(draft), draft) for draft in done]
