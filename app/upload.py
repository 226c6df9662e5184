"""An uploaded file that was accepted, and where its continuation begins."""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from app import continuation
from app.player import Frame, PromptFrame, TimelineFrame, pack_tracks, timeline
from tokenization.errors import MidiError
from tokenization.midi import read_midi

if TYPE_CHECKING:
    from app.continuation import Models, MusicModel, Prompt
    from app.options import BeatSource
    from tokenization.score import Score


@dataclass(frozen=True)
class Upload:
    """The whole of a file, and the part of it that new music follows."""

    whole: Prompt
    prompt: Prompt
    model: MusicModel
    """The one that continues it."""

    @property
    def title(self) -> str:
        """What to call it."""
        return Path(self.whole.name).stem

    @property
    def joint(self) -> float:
        """Where the new music begins, in quarter notes."""
        return self.prompt.joint_ticks / self.prompt.heard.ticks_per_beat

    @property
    def bars(self) -> int:
        """Bars of the prompt, up to the new music."""
        return self.prompt.bars

    def until(self, last_bar: int) -> Upload:
        """The same file with its prompt ending after `last_bar`, counted from 1.

        Raises:
            MidiError: there is no such bar, or nothing to hear so far.
        """
        if last_bar == self.whole.bars:
            return replace(self, prompt=self.whole)
        return replace(self, prompt=self._read(self.whole.facts.beats, last_bar))

    def counted_by(self, beats: BeatSource) -> Upload:
        """The same file with its bars and beats counted anew, up to its end.

        Raises:
            MidiError: they cannot be.
        """
        whole = self._read(beats)
        return replace(self, whole=whole, prompt=whole)

    def _read(self, beats: BeatSource, last_bar: int | None = None) -> Prompt:
        return continuation.read_prompt(
            self.whole.data,
            self.whole.name,
            last_bar,
            tokenizer=self.model.tokenizer,
            beats=beats,
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
        """The tracks of the whole file, and the joint."""
        return PromptFrame(tracks=pack_tracks(self.whole.score), joint=self.joint)


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
    model = models.to_continue(read_midi(data, name=path.name))
    prompt = continuation.read_prompt(data, path.name, tokenizer=model.tokenizer, beats=beats)
    return Upload(prompt, prompt, model)
