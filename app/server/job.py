"""One piece of work of the page: the frames it shows and the files it leaves."""

from __future__ import annotations

import json
import secrets
import threading
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from app.compose import replay
from app.compose.new_bars import NewBars, in_bars
from app.compose.options import MusicOptions
from app.files import appearing, safe_name
from app.player.frames import (
    Frame,
    TimelineFrame,
    TrackFrame,
    VariationFrame,
    blank_timeline,
    pack_tracks,
    timeline,
    track_ids,
)
from app.server.job_audio import SOUND_KINDS, Heard, JobSound, ids_as_heard, in_parts
from app.server.labels import file_stem, how_made
from app.text import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from app.compose.continuation import Progress
    from app.compose.models import MusicModel
    from app.compose.piece import Piece
    from app.server.uploads import Upload
    from tokenization.score import Score

NEW_PIECE = "A new piece"
PROMPT_ALONE = -1
"""The upload in the place of a variation."""


class Job:
    """One piece of work and the frame it has come to.

    It is known by its `id`, which nobody can guess. Where `new_folder` can give it a folder, the
    upload can be heard before anything is written; it is asked when a file is. The built-in player
    plays `soundfont`, or the General MIDI one.
    """

    def __init__(
        self,
        model: MusicModel,
        upload: Upload | None,
        options: MusicOptions,
        new_folder: Callable[[], Path] | None = None,
        soundfont: Path | None = None,
    ) -> None:
        self.model, self.upload, self.options = model, upload, options
        self._seconds_asked = options.seconds if upload is None else None
        self.bars = in_bars(options, upload.prompt).bars if upload else options.bars
        """Of the new music; a guess where a piece from nothing is to last so many seconds."""
        self.id = secrets.token_hex(16)
        self.title = upload.title if upload else NEW_PIECE
        self.prompt = upload.prompt_frame() if upload else None
        self.variations = [VariationFrame(tracks=[]) for _ in range(options.variations)]
        self.timeline = self._expected()
        self.folder: Path | None = None
        self._new_folder = new_folder
        self.sound = JobSound(self._heard, soundfont)
        self.pieces: tuple[Piece, ...] = ()
        self._making: defaultdict[object, threading.Lock] = defaultdict(threading.Lock)

    def _timeline(self, score: Score) -> TimelineFrame:
        """Bars and tempos of a score."""
        return self.upload.timeline(score) if self.upload else timeline(score)

    def _tracks(self, score: Score) -> list[TrackFrame]:
        """New music, in the colours of the tracks that it continues."""
        return pack_tracks(score, self.upload.whole.score if self.upload else None)

    def _expected(self) -> TimelineFrame:
        """Bars and tempos to come, if all is written."""
        if self.upload is None:
            return blank_timeline(self.bars)
        prompt = self.upload.prompt
        end = NewBars.after(prompt, self.bars).end_ticks
        return self.upload.timeline(replace(prompt.score, tracks=(), end_ticks=0), end)

    def frame(
        self, phase: str, *, line: str = "", status: str = "", progress: float = 0.0
    ) -> Frame:
        """What the player shows in a phase, with all that is there so far."""
        if phase == "done":  # what has no sound by now gets none
            self.variations = [
                row | VariationFrame(sound="none") if row.get("sound") == "making" else row
                for row in self.variations
            ]
        what = plural(self.bars, "bar")
        if self._seconds_asked is not None and not self.pieces:
            what = f"{self._seconds_asked:g} s"
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
            if self.folder is not None or self._new_folder is not None:
                frame["prompt"] = self.prompt.copy()
                frame["prompt"]["sound"] = "ready"
        return frame

    def waiting(self, step: Progress) -> Frame:
        """While others are at work: who comes before it, and how long that takes."""
        line = f"Waiting for the {self.model.name} model: "
        line += f"{step.place - 1:,} before you" if step.place > 1 else "yours is the next one"
        if step.seconds_left is not None:
            line += f", about {_duration(step.seconds_left)}"
        return self.frame("waiting", line=line, status="Waiting for the model.")

    def starting(self) -> Frame:
        """Before the first token: the model reads what it is to continue."""
        return self.frame("composing", line="Reading the prompt …" if self.upload else "Starting …")

    def progress(self, step: Progress) -> Frame:
        """Music so far, bars done, speed and the time that is left."""
        if step.preparing:
            return self.frame(
                "composing",
                line="Getting the compiled code ready: half a minute the first time …",
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
        asked, part = self._seconds_asked, step.part_done
        whole = f" of {step.bars}" if asked is None else ""
        bar = step.bars_done + (part < 1)
        line = f"Bar {bar}{whole} · {step.notes} notes"
        if len(step.scores) > 1:
            line += f" in {len(step.scores)} variations"
        if step.seconds > 0.5:
            line += f" · {step.notes / step.seconds:.0f} notes/s"
        if asked is not None:
            line += f" · {part * asked:.0f} of {asked:g} s"
        if 0 < part < 1:
            line += f" · about {_duration(step.seconds * (1 - part) / part)} left"
        return self.frame(
            "composing",
            line=line,
            status=f"Bar {(bar - 1) // 4 * 4 + 1}{whole}",  # not each: it is read out
            progress=part,
        )

    def ended_empty(self, why: str = "") -> Frame:
        """Nothing was written; `why` says what ended it."""
        frame = self.frame("prompt" if self.upload else "empty")
        frame["variations"] = []
        ended = why or "The work ended before the first note"
        frame["alert"] = f"{ended}: there is nothing to keep."
        return frame

    def write(self, pieces: tuple[Piece, ...], folder: Path) -> None:
        """Leaves the MIDI files of all variations."""
        self.folder, self.pieces = folder, pieces
        self.variations = []
        for index, piece in enumerate(pieces):
            stem = self._stem(index)
            midi, alone = folder / f"{stem}.mid", folder / f"{stem}_new_part.mid"
            _write(midi, piece.midi)
            frame = VariationFrame(
                tracks=self._tracks(piece.new),
                timeline=self._timeline(piece.score),
                midi=midi.as_posix(),
                settings=how_made(piece, self.model, self.upload, self.options),
                sound="making",
                files=["midi", "replay"],
                facts=f"{plural(piece.new.num_notes, 'note')} · {_clock(self._seconds(piece))}",
            )
            if self.upload is not None:
                _write(alone, piece.new_midi)
                frame["new_midi"] = alone.as_posix()
                frame["files"] = ["midi", "new_midi", "replay"]
            self.variations.append(frame)

    def render(self, index: int, progress: Callable[[float], None] | None = None) -> None:
        """Leaves the sound of one variation; `progress` is called with the part that is done.

        Raises:
            SoundError: it cannot be rendered.
        """
        self.variations = list(self.variations)
        try:
            path = self.sound.render(index, progress).mix()
        except BaseException:
            self.variations[index] = self.variations[index] | VariationFrame(sound="none")
            raise
        files = [*self.variations[index].get("files", []), *SOUND_KINDS]
        self.variations[index] = self.variations[index] | VariationFrame(
            audio=path.as_posix(), sound="ready", files=files
        )

    def rendering(self, index: int, stop: Callable[[], bool]) -> Iterator[float]:
        """As `render`, which it ends where `stop` says so: the part that is done, now and then."""
        return in_parts(lambda report: self.render(index, report), stop)

    def file(self, variation: int, kind: str) -> Path:
        """A file of a variation, or of the upload (PROMPT_ALONE), made where it is not there yet.

        Kinds are midi, new_midi (the new music alone) and replay (JSON of all that makes it again);
        `sound` has the others.

        Raises:
            LookupError: there is no such variation, or no file of this kind.
        """
        name = self._name(variation)
        content: Callable[[], bytes] | None = None
        if kind == "midi" and variation == PROMPT_ALONE and self.upload is not None:
            content, suffix = lambda: self.upload.whole.data if self.upload else b"", ".mid"
        elif variation == PROMPT_ALONE or kind not in ("midi", "new_midi", "replay"):
            raise LookupError(f"no file of the kind {kind}")
        elif kind == "replay":
            content, suffix = lambda: self._replay(variation), ".json"
        elif kind == "new_midi" and self.upload is not None:
            content, suffix = lambda: self.pieces[variation].new_midi, "_new_part.mid"
        elif kind == "midi":
            content, suffix = lambda: self.pieces[variation].midi, ".mid"
        else:
            raise LookupError("a piece from nothing is new as a whole: ask for midi")
        path = self._own_folder() / f"{name}{suffix}"
        with self._making[variation, kind]:
            if not path.exists():
                _write(path, content())
        return path

    @property
    def is_there(self) -> bool:
        """Whether its files can be asked for: nobody has removed its folder."""
        if self.folder is None:
            return self._new_folder is not None
        return self.folder.is_dir()

    def _heard(self, variation: int) -> Heard:
        """What is heard, and where its files go."""
        name, folder = self._name(variation), self._own_folder()
        whole = self.upload.whole.score if self.upload else None
        if variation == PROMPT_ALONE and whole is not None:
            return Heard(whole, track_ids(whole), folder, name)
        piece = self.pieces[variation]
        return Heard(piece.score, ids_as_heard(piece, whole), folder, name)

    def _own_folder(self) -> Path:
        with self._making["folder"]:
            if self.folder is None:
                if self._new_folder is None:
                    raise LookupError("nothing is written yet")
                self.folder = self._new_folder()
            return self.folder

    def _name(self, variation: int) -> str:
        """Of a variation's files, without suffix."""
        if variation == PROMPT_ALONE and self.upload is not None:
            return safe_name(self.title)
        if not 0 <= variation < len(self.pieces):
            raise LookupError(f"there is no variation {variation + 1}")
        return self._stem(variation)

    def _stem(self, variation: int) -> str:
        piece = self.pieces[variation]
        return file_stem(piece, variation, self.model, self.upload, self.options)

    def _seconds(self, piece: Piece) -> float:
        """Length of the new music."""
        score, begin = piece.score, 0.0
        if self.upload is not None:
            prompt = self.upload.prompt
            begin = float(prompt.score.seconds_at(prompt.joint_ticks))
        return piece.seconds or float(score.seconds_at(score.end_ticks)) - begin

    def _replay(self, variation: int) -> bytes:
        """All that makes one variation again, as JSON."""
        alone = replace(self.options, seed=self.pieces[variation].seed, variations=1)
        prompt = self.upload.prompt if self.upload else None
        data = self.upload.whole.data if self.upload else None
        told = replay.settings(alone, self.model, prompt, data)
        return (json.dumps(told, indent=2) + "\n").encode()


def _clock(seconds: float) -> str:
    return f"{round(seconds) // 60}:{round(seconds) % 60:02d}"


def _duration(seconds: float) -> str:
    seconds = max(1, round(seconds))
    return f"{seconds} s" if seconds < 90 else f"{round(seconds / 60)} min"


def _write(path: Path, data: bytes) -> None:
    with appearing(path) as beside:
        beside.write_bytes(data)
