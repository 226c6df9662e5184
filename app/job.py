"""One piece of work of the page: the frames it shows and the files it leaves."""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING

from app import replay, stems
from app.facts import counted
from app.files import appearing, safe_name
from app.labels import file_stem, how_made
from app.new_bars import NewBars
from app.options import MusicOptions
from app.player import (
    Frame,
    TimelineFrame,
    TrackFrame,
    VariationFrame,
    blank_timeline,
    pack_tracks,
    timeline,
    track_ids,
)
from app.soundfont import SoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from app.continuation import MusicModel, Piece, Progress
    from app.stems import Stems
    from app.upload import Upload
    from tokenization.score import Score, Track

NEW_PIECE = "A new piece"
PROMPT_ALONE = -1
"""The upload in the place of a variation."""
SOUND_KINDS = ("flac", "wav", "ogg", "stems")
"""Kinds of files that are sound; `stems` is an archive of all tracks apart."""
SECONDS_BETWEEN_PARTS = 0.25
"""Least time between two frames while sound is made."""


class _GivenUpError(Exception):
    """The sound is not wanted any more."""


class Job:
    """One piece of work and the frame it has come to.

    It is known by its `id`, which nobody can guess. With a `folder` the upload can be heard before
    anything is written. The built-in player plays `soundfont`, or the General MIDI one.
    """

    def __init__(
        self,
        model: MusicModel,
        upload: Upload | None,
        options: MusicOptions,
        folder: Path | None = None,
        soundfont: Path | None = None,
    ) -> None:
        self.model, self.upload, self.options = model, upload, options
        self.bars = options.bars
        self.id = secrets.token_hex(16)
        self.title = upload.title if upload else NEW_PIECE
        self.prompt = upload.prompt_frame() if upload else None
        self.variations = [VariationFrame(tracks=[]) for _ in range(options.variations)]
        self.timeline = self._expected()
        self.folder = folder
        self.soundfont = soundfont
        self.pieces: tuple[Piece, ...] = ()
        self._stems: dict[int, Stems] = {}
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
            return blank_timeline(self.options.bars)
        prompt = self.upload.prompt
        end = NewBars.after(prompt, self.options.bars).end_ticks
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
            if self.folder is not None:
                frame["prompt"] = self.prompt.copy()
                frame["prompt"]["sound"] = "ready"
        return frame

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
        line = f"Bar {min(step.bars_done + 1, step.bars)} of {step.bars} · {step.notes} notes"
        if len(step.scores) > 1:
            line += f" in {len(step.scores)} variations"
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
                facts=f"{counted(piece.new.num_notes, 'note')} · {_clock(self._seconds(piece))}",
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
            path = self.stems(index, progress).mix()
        except SoundError:
            self.variations[index] = self.variations[index] | VariationFrame(sound="none")
            raise
        files = [*self.variations[index].get("files", []), *SOUND_KINDS]
        self.variations[index] = self.variations[index] | VariationFrame(
            audio=path.as_posix(), sound="ready", files=files
        )

    def rendering(self, index: int, stop: Callable[[], bool]) -> Iterator[float]:
        """As `render`, which it ends where `stop` says so: the part that is done, now and then."""
        news: SimpleQueue[float | BaseException | None] = SimpleQueue()
        closed = threading.Event()
        told = time.monotonic()

        def report(done: float) -> None:
            nonlocal told
            if closed.is_set() or stop():
                raise _GivenUpError
            if time.monotonic() - told >= SECONDS_BETWEEN_PARTS:
                told = time.monotonic()
                news.put(done)

        def work() -> None:
            try:
                self.render(index, report)
                news.put(None)
            except _GivenUpError:
                news.put(None)
            except BaseException as error:  # noqa: BLE001 - whoever asks for the next part gets it
                news.put(error)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        try:
            while (part := news.get()) is not None:
                if isinstance(part, BaseException):
                    raise part
                yield part
        finally:
            closed.set()
            thread.join()

    def file(self, variation: int, kind: str) -> Path:
        """A file of a variation, or of the upload (PROMPT_ALONE), made where it is not there yet.

        Kinds are midi, new_midi (the new music alone), flac, wav, ogg, stems (an archive), and
        replay (JSON of all that makes it again).

        Raises:
            LookupError: there is no such variation, or no file of this kind.
            SoundError: it cannot be rendered or written.
        """
        name, folder = self._name(variation), self._folder()
        if kind in SOUND_KINDS:
            made = self.stems(variation)
            with self._making[variation, kind]:
                return made.zip() if kind == "stems" else made.mix(suffix=f".{kind}")
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
        path = folder / f"{name}{suffix}"
        with self._making[variation, kind]:
            if not path.exists():
                _write(path, content())
        return path

    def mix(self, variation: int, without: Collection[int]) -> Path:
        """The sound of a variation, or of the upload (PROMPT_ALONE), without tracks by their ids.

        Raises:
            LookupError: there is no such variation.
            SoundError: it cannot be rendered or written.
        """
        made = self.stems(variation)
        with self._making[variation, "mix"]:
            return made.mix(without, suffix=".wav") if without else made.mix()

    def stems(self, variation: int, progress: Callable[[float], None] | None = None) -> Stems:
        """The sound of a variation, or of the upload, rendered once. Raises as `file`."""
        name, folder = self._name(variation), self._folder()
        with self._making[variation]:
            if variation not in self._stems:
                score, ids = self._score(variation)
                self._stems[variation] = stems.render(
                    score, folder, name, ids=ids, soundfont=self.soundfont, progress=progress
                )
            return self._stems[variation]

    def has_sound(self, variation: int) -> bool:
        """Whether its sound is rendered, so that a mix of it takes no time."""
        return variation in self._stems

    def _score(self, variation: int) -> tuple[Score, list[int]]:
        """What is heard, and the ids of its tracks in the frames."""
        whole = self.upload.whole.score if self.upload else None
        if variation == PROMPT_ALONE and whole is not None:
            return whole, track_ids(whole)
        piece = self.pieces[variation]
        return piece.score, _ids_as_heard(piece, whole)

    def _folder(self) -> Path:
        if self.folder is None:
            raise LookupError("nothing is written yet")
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


def _ids_as_heard(piece: Piece, whole: Score | None) -> list[int]:
    """Of each track of a finished piece its id in the frames.

    Those of the file are known by their place; new ones stand in the piece in the order in which
    they were written, one after the other of each instrument.
    """
    known = (
        {} if whole is None else dict(zip(map(_place, whole.tracks), track_ids(whole), strict=True))
    )
    waiting: dict[tuple[int, bool], list[int]] = {}
    for track, number in zip(piece.new.tracks, track_ids(piece.new, whole), strict=True):
        if len(track) and _place(track) not in known:
            waiting.setdefault((track.program, track.is_drum), []).append(number)
    ids: list[int] = []
    for track in piece.score.tracks:
        number = known.get(_place(track))
        if number is None:
            of_instrument = waiting.get((track.program, track.is_drum)) or [-1]
            number = of_instrument.pop(0) if len(of_instrument) > 1 else of_instrument[0]
        ids.append(number)
    return ids


def _place(track: Track) -> tuple[int | None, int, int]:
    return track.chunk, track.channel, track.program


def _clock(seconds: float) -> str:
    return f"{round(seconds) // 60}:{round(seconds) % 60:02d}"


def _duration(seconds: float) -> str:
    seconds = max(1, round(seconds))
    return f"{seconds} s" if seconds < 90 else f"{round(seconds / 60)} min"


def _write(path: Path, data: bytes) -> None:
    with appearing(path) as beside:
        beside.write_bytes(data)
