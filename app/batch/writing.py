"""Clips that one model writes side by side: as one ends, the next one enters."""

from __future__ import annotations

from collections import deque
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from app.compose.piece import Draft, Drafts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from app.batch.clips import Clip, Source
    from app.compose.models import MusicModel
    from app.compose.piece import Opening
    from relpe.models.decoder import DecoderState


class _Read(NamedTuple):
    """A prompt that has been read, and its clips that have not entered yet."""

    opening: Opening
    state: DecoderState
    clips: list[Clip]


class Writing:
    """Continuous batching: a prompt is read once, when there is room for the first of its clips."""

    def __init__(
        self,
        model: MusicModel,
        clips: Sequence[Clip],
        opening_of: Callable[[Source], Opening | None],
        width: int,
    ) -> None:
        """The clips of a source stand side by side; where `opening_of` it is None they are left."""
        self._drafts = Drafts(model)
        self._clips: dict[Draft, Clip] = {}
        self._waiting = deque((s, list(own)) for s, own in groupby(clips, lambda c: c.source))
        self._read: _Read | None = None
        self._opening_of, self._width = opening_of, width

    @property
    def drafts(self) -> list[Draft]:
        """Those that are being written."""
        return list(self._clips)

    def steps(self, stop: Callable[[], bool]) -> Iterator[list[tuple[Clip, Draft]]]:
        """The clips that have ended, after each token of all.

        Ends with the last one, or where `stop` says so.
        """
        while not stop():
            while len(self._clips) < self._width and self._enter(stop):
                pass
            if not self._clips:
                return
            yield [(self._clips.pop(draft), draft) for draft in self._drafts.step()]

    def _enter(self, stop: Callable[[], bool]) -> bool:
        """Lets in clips of one source, as many as there is room for; False where none are left."""
        if self._read is None:
            if not self._waiting:
                return False
            source, clips = self._waiting.popleft()
            opening = self._opening_of(source)
            if opening is None:
                return True
            state = opening.unread()
            for newest in opening.read(state):
                state = newest
                if stop():
                    return False
            self._read = _Read(opening, state, clips)
        opening, state, clips = self._read
        room = self._width - len(self._clips)
        entering, later = clips[:room], clips[room:]
        drafts = self._drafts.enter(opening, state, [clip.seed for clip in entering])
        self._clips.update(zip(drafts, entering, strict=True))
        self._read = _Read(opening, state, later) if later else None
        return True
