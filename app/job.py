"""One piece of work of the page: the frames it shows and the files it leaves."""

from __future__ import annotations

import re
import secrets
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from app import sound
from app.facts import counted
from app.files import appearing, safe_name
from app.new_bars import NewBars
from app.player import (
    Frame,
    TimelineFrame,
    TrackFrame,
    VariationFrame,
    blank_timeline,
    pack_tracks,
    timeline,
)

if TYPE_CHECKING:
    from app.continuation import MusicModel, MusicOptions, Piece, Progress
    from app.upload import Upload
    from tokenization.score import Score

NEW_PIECE = "A new piece"
_BEATS = {"estimate": "beats estimated", "grid": "beats of a clock"}


class Job:
    """One piece of work and the frame it has come to."""

    def __init__(self, model: MusicModel, upload: Upload | None, options: MusicOptions) -> None:
        self.model, self.upload, self.options = model, upload, options
        self.bars = options.bars
        self.id = secrets.token_hex(4)
        self.title = upload.title if upload else NEW_PIECE
        self.prompt = upload.prompt_frame() if upload else None
        self.variations = [VariationFrame(tracks=[]) for _ in range(options.variations)]
        self.timeline = self._expected()
        self.folder = Path()

    def _timeline(self, score: Score) -> TimelineFrame:
        """Bars and tempos of a score."""
        return self.upload.timeline(score) if self.upload else timeline(score)

    def _tracks(self, score: Score) -> list[TrackFrame]:
        """New music, in the colours of the tracks that it continues."""
        return pack_tracks(score, self.upload.whole.score if self.upload else None)

    def _expected(self) -> TimelineFrame:
        """Bars and tempos to come, if all is written."""
        if self.upload is None:
            return blank_timeline(self.options.bars)
        prompt = self.upload.prompt
        end = NewBars.after(prompt, self.options.bars).end_ticks
        return self.upload.timeline(replace(prompt.score, tracks=(), end_ticks=0), end)

    def frame(
        self, phase: str, *, line: str = "", status: str = "", progress: float = 0.0
    ) -> Frame:
        """What the player shows in a phase, with all that is there so far."""
        what = counted(self.bars, "bar")
        after = f" after bar {self.upload.bars}" if self.upload else ""
        frame = Frame(
            job=self.id,
            phase=phase,
            title=self.title,
            subtitle=f"{what}{after}, by {self.model.name}",
            line=line,
            status=status,
            progress=progress,
            timeline=self.timeline,
            variations=self.variations,
        )
        if self.prompt is not None:
            frame["prompt"] = self.prompt
        return frame

    def starting(self) -> Frame:
        """Before the first token: the model reads what it is to continue."""
        return self.frame("composing", line="Reading the prompt …" if self.upload else "Starting …")

    def progress(self, step: Progress) -> Frame:
        """Music so far, bars done, speed and the time that is left."""
        if step.preparing:
            return self.frame(
                "composing",
                line="Compiling for this processor: half a minute, the first time only …",
            )
        if not step.tokens:
            return self.starting()
        self.variations = [
            VariationFrame(
                tracks=self._tracks(score),
                timeline=(
                    self.timeline if self.upload else blank_timeline(self.options.bars, score)
                ),
            )
            for score in step.scores
        ]
        line = f"Bar {min(step.bars_done + 1, step.bars)} of {step.bars} · {step.notes} notes"
        if step.seconds > 0.5:
            line += f" · {step.notes / step.seconds:.0f} notes/s"
        if step.bars_done:
            left = step.seconds * (step.bars - step.bars_done) / step.bars_done
            line += f" · about {_duration(left)} left"
        return self.frame(
            "composing",
            line=line,
            status=f"Bar {step.bars_done // 4 * 4 + 1} of {step.bars}",
            progress=step.bars_done / max(step.bars, 1),
        )

    def ended_empty(self) -> Frame:
        """Nothing was written."""
        frame = self.frame("prompt" if self.upload else "empty")
        frame["variations"] = []
        frame["alert"] = "The work ended before the first note: there is nothing to keep."
        return frame

    def write(self, pieces: tuple[Piece, ...], folder: Path) -> None:
        """Leaves the MIDI files of all variations."""
        self.folder = folder
        self.variations = []
        for index, piece in enumerate(pieces):
            midi = folder / f"{self.stem(index, piece)}.mid"
            alone = folder / f"{self.stem(index, piece)}_new_part.mid"
            _write(midi, piece.midi)
            frame = VariationFrame(
                tracks=self._tracks(piece.new),
                timeline=self._timeline(piece.score),
                midi=midi.as_posix(),
                settings=self.settings(piece),
            )
            if self.upload is not None:
                _write(alone, piece.new_midi)
                frame["new_midi"] = alone.as_posix()
            self.variations.append(frame)

    def render(self, index: int, piece: Piece) -> None:
        """Leaves the sound of one variation.

        Raises:
            SoundError: it cannot be rendered.
        """
        path = self.folder / f"{self.stem(index, piece)}.flac"
        sound.save_audio(sound.render(piece.score), path)
        self.variations = list(self.variations)
        self.variations[index] = self.variations[index] | VariationFrame(audio=path.as_posix())

    def stem(self, index: int, piece: Piece) -> str:
        """File name without suffix: what it is, and all that is needed to make it again."""
        before: list[str] = []
        if self.upload is not None:
            beats = self.upload.prompt.facts.beats
            before = [safe_name(self.title), f"a{self.upload.bars}"]
            before += [beats] if beats != "file" else []
        parts = [
            *before,
            safe_name(self.model.name),
            f"b{self.options.bars}",
            f"s{piece.seed}",
            f"T{_exact(self.options.temperature)}",
            f"p{_exact(self.options.top_p)}",
            *(part for part, _ in _steering(self.options)),
            *([f"v{index + 1}"] if self.options.variations > 1 else []),
        ]
        return "_".join(parts)

    def settings(self, piece: Piece) -> str:
        """One line: how it was made, and what came of it."""
        what, beats = f"asked for {counted(self.options.bars, 'bar')}", None
        if self.upload is not None:
            what += f" after bar {self.upload.bars}"
            beats = _BEATS.get(self.upload.prompt.facts.beats)
        parts = [
            f"seed {piece.seed}",
            what,
            *([beats] if beats else []),
            f"T {_exact(self.options.temperature)}",
            f"top-p {_exact(self.options.top_p)}",
            *(said for _, said in _steering(self.options)),
            counted(piece.new.num_notes, "new note"),
            f"{piece.tokens_per_second:.0f} tokens/s",
            f"{self.model.name} on {self.model.device}",
        ]
        return " · ".join(parts)


def _steering(options: MusicOptions) -> list[tuple[str, str]]:
    """What else was chosen, of which most is left to the model: in a file name, and in words."""
    chosen: list[tuple[str, str]] = []
    if options.top_k:
        chosen.append((f"k{options.top_k}", f"top-k {options.top_k}"))
    for letter, name in (("m", "min_p"), ("d", "density"), ("r", "repetition")):
        if value := getattr(options, name):
            chosen.append((f"{letter}{_exact(value)}", f"{name.replace('_', '-')} {_exact(value)}"))
    if options.key is not None:
        sharp = re.sub("[#♯]", "-sharp-", options.key).replace("♭", "b")
        chosen.append((f"in-{safe_name(sharp)}", f"in {options.key}"))
    if options.ending != "bar":
        chosen.append((options.ending, options.ending))
    return chosen


def _exact(number: float) -> str:
    """With two decimals, or as many more as it has."""
    text = f"{number:.2f}"
    return text if float(text) == number else str(number)


def _duration(seconds: float) -> str:
    seconds = max(1, round(seconds))
    return f"{seconds} s" if seconds < 90 else f"{round(seconds / 60)} min"


def _write(path: Path, data: bytes) -> None:
    with appearing(path) as beside:
        beside.write_bytes(data)
