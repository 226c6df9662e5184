"""An uploaded file that was accepted, and where its continuation begins."""

from __future__ import annotations

import os
import secrets
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from app.compose.options import MusicOptions
from app.compose.prompt import read_prompt
from app.player.frames import Frame, PromptFrame, TimelineFrame, pack_tracks, timeline
from app.server.sandbox import Apart, LimitError
from tokenization.errors import MidiError
from tokenization.midi import read_midi

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from app.compose.models import Models, MusicModel
    from app.compose.options import BeatSource
    from app.compose.prompt import Prompt
    from tokenization.score import Score
    from tokenization.tokenizer import Tokenizer

MOST_NOTES = 100_000
"""Of an upload: an hour of music of an orchestra. Others of the page wait for what is longer."""
MOST_CONTROLS = 500_000
"""Controllers and bends, those of a channel once for each of its tracks, as they are played."""
READER = Apart(preload=["app.compose.prompt"])
"""Reads all uploads of this process."""


@dataclass(frozen=True)
class Upload:
    """The whole of a file, and the part of it that new music follows."""

    whole: Prompt
    prompt: Prompt
    model: MusicModel
    """The one that continues it."""
    score: Score
    """The whole file as it was read."""

    @property
    def title(self) -> str:
        """What to call it."""
        return Path(self.whole.name).stem

    @property
    def joint(self) -> float:
        """Where the new music begins, in quarter notes."""
        return self.prompt.joint_ticks / self.prompt.score.ticks_per_beat

    @property
    def bars(self) -> int:
        """Bars of the prompt, up to the new music."""
        return self.prompt.bars

    @property
    def first_bar(self) -> int:
        """The first bar that the model hears, from 1, if nothing else is asked for."""
        if self.prompt.first_bar is not None:
            return self.prompt.first_bar
        usual = MusicOptions.prompt_bars
        return max(self.bars - usual, 0) + 1 if usual else 1

    def until(self, last_bar: int) -> Upload:
        """The same file with its prompt ending after `last_bar`, counted from 1.

        Raises:
            MidiError: there is no such bar, or nothing to hear so far.
        """
        return self.choose(None, last_bar, None, None)

    def choose(
        self,
        first_bar: int | None,
        last_bar: int,
        heard: frozenset[int] | None,
        played: frozenset[int] | None,
    ) -> Upload:
        """The same file with another prompt: bars from 1, tracks by their numbers in the frames.

        What follows `last_bar` is cut off; `first_bar` only says where the model begins to hear, up
        to the options where None. It hears the tracks `heard`, those `played` may play in the new
        music; all where None. All tracks stay in the file.

        Raises:
            MidiError: there is no such bar or track, or nothing to hear or nobody to play.
        """
        if (first_bar, last_bar, heard, played) == (None, self.whole.bars, None, None):
            return replace(self, prompt=self.whole)
        read = self._read(
            self.whole.facts.beats,
            last_bar,
            first_bar=first_bar,
            heard=heard,
            played=played,
        )
        return replace(self, prompt=read)

    def counted_by(self, beats: BeatSource) -> Upload:
        """The same file with its bars and beats counted anew, up to its end.

        Raises:
            MidiError: they cannot be.
        """
        whole = self._read(beats)
        return replace(self, whole=whole, prompt=whole)

    def _read(
        self,
        beats: BeatSource,
        last_bar: int | None = None,
        *,
        first_bar: int | None = None,
        heard: frozenset[int] | None = None,
        played: frozenset[int] | None = None,
    ) -> Prompt:
        return read_apart(
            self.whole.data,
            self.whole.name,
            last_bar,
            tokenizer=self.model.tokenizer,
            beats=beats,
            first_bar=first_bar,
            heard=heard,
            played=played,
            score=self.score,
        )

    def frame(self) -> Frame:
        """The player before anything is written."""
        return Frame(
            job=secrets.token_hex(4),
            phase="prompt",
            title=self.title,
            subtitle=f"New music begins after bar {self.bars}",
            timeline=self.timeline(self.whole.score),
            prompt=self.prompt_frame(),
            variations=[],
        )

    def timeline(self, score: Score, end_ticks: int = 0) -> TimelineFrame:
        """Of the file, or of what continues it: with the bars that it is counted in."""
        return timeline(score, end_ticks, self.prompt.timing.bar_lines(score, end_ticks))

    def prompt_frame(self) -> PromptFrame:
        """The tracks of the whole file, what is heard of them, and the joint."""
        score, parts = self.whole.score, self.prompt.parts
        tracks = pack_tracks(score)
        for frame, track, row in zip(tracks, score.tracks, self.prompt.facts.rows, strict=True):
            frame["id"], frame["instrument"] = row.id, row.instrument
            frame["heard"], frame["played"] = parts.hears(track), parts.may_play(track)
        first = self.prompt.line(self.first_bar - 1) / self.prompt.score.ticks_per_beat
        return PromptFrame(tracks=tracks, joint=self.joint, first=first)


def read_upload(path: Path, max_bytes: int, models: Models, beats: BeatSource = "file") -> Upload:
    """The upload of a file.

    Raises:
        MidiError: it cannot be continued; the message is one sentence for the user.
        CheckpointError, TokenizerError: the model that would continue it cannot be used.
    """
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(0)
            data = file.read(max_bytes)
    except OSError as error:
        raise MidiError(
            f"{path.name}: the upload cannot be read ({error.strerror or error}); upload the file "
            "again"
        ) from error
    if size > max_bytes:
        raise MidiError(
            f"{path.name}: found {size:,} bytes, expected at most {max_bytes:,}; export a shorter "
            "part"
        )
    with _within_limits(path.name):
        score = READER.call(read_midi, data, name=path.name)
    if score.num_notes > MOST_NOTES:
        raise MidiError(
            f"{path.name}: found {score.num_notes:,} notes, expected at most {MOST_NOTES:,}; use a "
            "part of it"
        )
    controls = sum(len(track.controls) + len(track.bends) for track in score.tracks)
    if controls > MOST_CONTROLS:
        raise MidiError(
            f"{path.name}: found {controls:,} controllers and bends in all tracks together, "
            f"expected at most {MOST_CONTROLS:,}; thin them out and export it again"
        )
    model = models.to_continue(score)
    prompt = read_apart(data, path.name, tokenizer=model.tokenizer, beats=beats, score=score)
    return Upload(prompt, prompt, model, score)


def read_apart(
    data: bytes,
    name: str,
    last_bar: int | None = None,
    *,
    tokenizer: Tokenizer,
    beats: BeatSource,
    first_bar: int | None = None,
    heard: Collection[int] | None = None,
    played: Collection[int] | None = None,
    score: Score | None = None,
) -> Prompt:
    """As `read_prompt`, in a process apart; raises MidiError also where that takes too much."""
    with _within_limits(name):
        return READER.call(
            read_prompt,
            data,
            name,
            last_bar,
            tokenizer=tokenizer,
            beats=beats,
            first_bar=first_bar,
            heard=heard,
            played=played,
            score=score,
        )


@contextmanager
def _within_limits(name: str) -> Iterator[None]:
    try:
        yield
    except LimitError as error:
        raise MidiError(
            f"{name}: reading the file {error}, expected less; use a part of it or thin it out"
        ) from error
