"""A job of the page: its frames for the player, and its files."""

from __future__ import annotations

import json
import logging
import re
import secrets
import threading
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from app.compose import replay
from app.compose.new_bars import NewBars, in_bars
from app.compose.options import OPTIONS, MusicOptions
from app.compose.plan.asked import ASKED, Met, chords_met, form_met, heard_before
from app.compose.plan.lead_sheet import LeadSheet, plan_of
from app.compose.plan.sections import until, with_asked
from app.compose.plan.sheet_music import is_for_piano, sheet_music
from app.compose.tracks import instrument_name
from app.errors import DiskError
from app.files import safe_name
from app.player.frames import (
    Frame,
    TimelineFrame,
    TrackFrame,
    VariationFrame,
    blank_timeline,
    pack_sheet,
    pack_tracks,
    timeline,
    track_ids,
)
from app.server.downloads import DOWNLOADS, SOUND_KINDS, Download
from app.server.job_audio import SoundSource, ids_in_frames
from app.server.memory.sizes import size_of
from app.text import duration, listed, plural
from relpe.files import atomic_write
from tokenization.analysis.keys import key_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from app.compose.continuation import Progress
    from app.compose.models import MusicModel
    from app.compose.piece import Piece
    from app.server.uploads import Upload
    from tokenization.score import Score

_log = logging.getLogger(__name__)

NEW_PIECE = "A new piece"
PROMPT_ALONE = -1
"""The variation number that refers to the upload."""
CHUNK_BARS = 4
"""Bars after which takes are ranked if the music is heard while it is written."""
_BEATS = {"estimate": "estimated beats", "grid": "beats at 120 bpm"}
_ENDINGS = {"bar": "ends at the bar line", "cadence": "cadence", "natural": "ending by the model"}


class Job:
    """A user's request for music: its state, frames, MIDI files and sound.

    Its `id` is random and cannot be guessed. `new_folder` makes the folder of its files when the
    first one is written. With `new_folder`, the upload can be played before there is new music.
    """

    def __init__(
        self,
        model: MusicModel,
        upload: Upload | None,
        options: MusicOptions,
        new_folder: Callable[[], Path] | None = None,
    ) -> None:
        self.model, self.upload, self.options = model, upload, options
        self._seconds_asked = options.seconds if upload is None else None
        self.bars = in_bars(options, upload.prompt).bars if upload else options.bars
        """Bars of new music; an estimate if a piece from nothing has a length in seconds."""
        self.id = secrets.token_hex(16)
        self.title = upload.title if upload else NEW_PIECE
        self.prompt = upload.prompt_frame() if upload else None
        self.variations = [VariationFrame(tracks=[]) for _ in range(options.variations)]
        self.timeline = self._expected()
        self.folder: Path | None = None
        self._new_folder = new_folder
        self.pieces: tuple[Piece, ...] = ()
        self.listens = False
        """Whether the music is to be played as soon as its first bars are written."""
        self._making: defaultdict[object, threading.Lock] = defaultdict(threading.Lock)

    @property
    def size(self) -> int:
        """Bytes of memory of its music, an estimate."""
        return size_of([self.upload, self.prompt, self.timeline, self.pieces, self.variations])

    def _timeline(self, score: Score) -> TimelineFrame:
        """Return the bars and tempos of a score."""
        return self.upload.timeline(score) if self.upload else timeline(score)

    def _tracks(self, score: Score) -> list[TrackFrame]:
        """Return tracks of new music, with the ids and colours of the tracks that they continue."""
        return pack_tracks(score, self.upload.whole.score if self.upload else None)

    def _expected(self) -> TimelineFrame:
        """Return the bars and tempos that the finished music is expected to have."""
        if self.upload is None:
            return blank_timeline(self.bars)
        prompt = self.upload.prompt
        end = NewBars.after(prompt, self.bars).end_ticks
        if prompt.gap is not None:
            end = max(end, prompt.score.end_ticks)
        return self.upload.timeline(replace(prompt.score, tracks=(), end_ticks=0), end)

    def frame(
        self, phase: str, *, line: str = "", status: str = "", progress: float = 0.0
    ) -> Frame:
        """Return the frame for a phase, with the music and files so far."""
        what = plural(self.bars, "bar")
        if self._seconds_asked is not None and not self.pieces:
            what = f"{self._seconds_asked:g} s"
        if self.upload:
            what = self.upload.written or f"{what} after bar {self.upload.bars}"
        frame = Frame(
            job=self.id,
            phase=phase,
            title=self.title,
            subtitle=what,
            line=line,
            status=status,
            progress=progress,
            timeline=self.timeline,
            variations=self.variations,
        )
        if self.listens:
            frame["listens"] = True
        if self.prompt is not None:
            frame["prompt"] = self.prompt
        return frame

    def waiting(self, step: Progress) -> Frame:
        """Return the frame of a waiting job: how many are before it, and the expected time."""
        line = f"Waiting for the {self.model.name} model: "
        line += (
            f"{plural(step.place - 1, 'job')} before yours" if step.place > 1 else "you are next"
        )
        if step.seconds_left is not None:
            line += f", about {duration(step.seconds_left)}"
        return self.frame("waiting", line=line, status="Waiting for the model.")

    def starting(self) -> Frame:
        """Return the frame before the first token, while the model reads the prompt."""
        return self.frame("composing", line="Reading the prompt …" if self.upload else "Starting …")

    def progress(self, step: Progress) -> Frame:
        """Return the frame with the music so far, bars done, speed and time left."""
        if step.preparing:
            return self.frame(
                "composing",
                line="Compiling the model: half a minute, the first time only …",
            )
        if step.studying is not None:
            line = f"Studying the piece: {step.studying:.0%} …"
            return self.frame("composing", line=line, status="Studying the piece.")
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
        seconds = step.seconds - step.reading_seconds
        if seconds > 0.5:
            line += f" · {step.notes / seconds:.0f} notes/s"
        if asked is not None:
            line += f" · {part * asked:.0f} of {asked:g} s"
        if 0 < part < 1:
            left = seconds * (1 - part) / part
            line += f" · about {duration(left)} left"
        written = step.done_ticks / step.scores[0].ticks_per_beat if step.scores else 0.0
        return self.frame(
            "composing",
            line=line,
            status=f"Bar {(bar - 1) // 4 * 4 + 1}{whole}",  # screen readers announce it
            progress=part,
        ) | Frame(written=written)

    def listen(self) -> None:
        """Let the music be played while it is written.

        Several takes are ranked again and again, so that the bars before do not change. Does
        nothing if bars of a piece are written again.
        """
        if self.upload is None or self.upload.prompt.gap is None:
            every = 0 if self.options.takes == 1 else self.options.rank_every or CHUNK_BARS
            self.options = replace(self.options, rank_every=every)
            self.listens = True

    def ended_empty(self, why: str = "") -> Frame:
        """Return the frame after a job that generated no notes; `why` is the reason."""
        frame = self.frame("prompt" if self.upload else "empty")
        frame["variations"] = []
        ended = why or "The job ended before the first note"
        frame["alert"] = f"{ended}: there is nothing to keep."
        return frame

    def write(self, pieces: tuple[Piece, ...], folder: Path) -> None:
        """Write the MIDI files of all variations."""
        self.folder, self.pieces = folder, pieces
        self.variations = []
        for index, piece in enumerate(pieces):
            sheet = self._lead_sheet(piece)
            met = self._met(piece, sheet) if sheet else []
            met_lines = [*map(str, met)]
            silent = self._without_notes(piece)
            bars = self._timeline(piece.score)
            length = f"{plural(piece.new.num_notes, 'note')} · {_clock(self._seconds(piece))}"
            studied = [] if piece.studied is None else [piece.studied.line]
            frame = VariationFrame(
                tracks=self._tracks(piece.new),
                timeline=bars,
                midi=self.file(index, "midi").as_posix(),
                settings=self._how_made(piece, [*met_lines, *silent]),
                files=[*self._files(piece), *SOUND_KINDS],
                facts=" · ".join([length, *silent, *met_lines, *studied]),
            )
            if piece.accidents:
                frame["accidents"] = piece.accidents
            if self.upload is not None:
                frame["new_midi"] = self.file(index, "new_midi").as_posix()
            if sheet and (rows := pack_sheet(sheet, bars)) is not None:
                rows["missed"] = [bar for one in met if one.what == "chords" for bar in one.missed]
                frame["sheet"] = rows
            self.variations.append(frame)
        choices = [piece.choice for piece in pieces]
        likeness = [
            one.likenesses[one.best] - 1e3 * one.accidents[one.best].any for one in choices if one
        ]
        if 1 < len(likeness) == len(pieces):
            self.variations[likeness.index(max(likeness))]["best"] = True

    def _without_notes(self, piece: Piece) -> list[str]:
        """Return which of the tracks to be written have no notes; empty if all have some."""
        passage = self.upload.passage if self.upload else None
        if not piece.new.num_notes:
            return ["nothing was written"]
        if self.upload is None or passage is None:
            return []
        score = self.upload.whole.score
        playing = set(track_ids(piece.new, score))
        silent = self.upload.names((passage.tracks or frozenset()) - playing)
        if (new := passage.new_track) is not None and playing <= {-1, *track_ids(score)}:
            silent.append(instrument_name(new))
        return [f"no notes in {listed(silent)}"] if silent else []

    def _lead_sheet(self, piece: Piece) -> LeadSheet | None:
        """Return the form and chords of a piece, if its bars are those of its file."""
        upload = self.upload
        if upload is None:
            return LeadSheet.of(piece.score, with_asked((), 0, piece.bars, self.options.form))
        if upload.prompt.facts.beats != "file":
            return None
        first, given = upload.bars, upload.sheet.phrases
        if upload.passage is None:  # what followed the splice was cut off
            given = until(given, first)
        return LeadSheet.of(piece.score, with_asked(given, first, piece.bars, self.options.form))

    def _met(self, piece: Piece, sheet: LeadSheet) -> list[Met]:
        """Return how many bars have what was asked of them."""
        options, bars, first = self.options, piece.bars, self.upload.bars if self.upload else 0
        before = []
        if self.upload is not None and options.form is not None:
            prompt = self.upload.prompt
            before = heard_before(plan_of(prompt.timing.counted), first, prompt.sections)
        met = chords_met(options, sheet, first, bars), form_met(options, sheet, before, bars)
        return [one for one in met if one is not None]

    @property
    def new_music_seconds(self) -> float:
        """Where new music begins, in seconds from the start of the piece."""
        if self.upload is None:
            return 0.0
        prompt = self.upload.prompt
        return float(prompt.score.seconds_at(prompt.splice_ticks))

    def file(self, variation: int, kind: str) -> Path:
        """Return the path of a file of a variation, or of the upload (PROMPT_ALONE).

        The file is written if it does not exist. `kind` is one of DOWNLOADS, except those of sound:
        see `sound`.

        Raises:
            LookupError: there is no such variation, or no file of this kind.
            DiskError: the file cannot be written.
        """
        name, upload = self._name(variation), self.upload
        if kind == "new_midi" and upload is None:
            raise LookupError("a piece from nothing has no file of new music; request midi")
        is_prompt = upload is not None and variation == PROMPT_ALONE
        downloads = {d.kind: d for d in DOWNLOADS if is_prompt and d.kind in prompt_files(upload)}
        if not is_prompt:
            downloads = self._files(self.pieces[variation])
        if kind not in downloads:
            raise LookupError(f"there is no file of the kind {kind}")
        path = self._own_folder() / f"{name}{downloads[kind].suffix}"
        with self._making[variation, kind]:
            if not path.exists():
                content = self._content(variation, kind)
                try:
                    with atomic_write(path) as beside:
                        beside.write_bytes(content)
                except OSError as error:
                    raise DiskError(error) from error
        return path

    def _files(self, piece: Piece) -> dict[str, Download]:
        """Return the files of a variation except sound, keyed by kind."""
        kept = (d for d in DOWNLOADS if d.content is not None)
        return {
            d.kind: d
            for d in kept
            if (self.upload is not None or not d.after_prompt) and d.of(piece)
        }

    def _content(self, variation: int, kind: str) -> bytes:
        if self.upload is not None and variation == PROMPT_ALONE:
            whole = self.upload.whole
            return sheet_music(whole.score) if kind == "score" else whole.data
        piece = self.pieces[variation]
        content = self._files(piece)[kind].content
        assert content is not None
        return content(piece, lambda: self._replay(piece))

    @property
    def is_available(self) -> bool:
        """Whether its files can be requested: its folder has not been removed."""
        if self.folder is None:
            return self._new_folder is not None
        return self.folder.is_dir()

    def sound(self, variation: int) -> SoundSource:
        """Return the sound of a variation, or of the upload. Raises LookupError like `file`."""
        name, folder = self._name(variation), self._own_folder()
        whole = self.upload.whole.score if self.upload else None
        if variation == PROMPT_ALONE and whole is not None:
            return SoundSource(whole, track_ids(whole), folder, name)
        piece = self.pieces[variation]
        return SoundSource(piece.score, ids_in_frames(piece, whole), folder, name)

    def _own_folder(self) -> Path:
        with self._making["folder"]:
            if self.folder is None:
                if self._new_folder is None:
                    raise LookupError("the job has no files yet")
                self.folder = self._new_folder()
            return self.folder

    def _name(self, variation: int) -> str:
        """Return the file name of a variation without suffix, with its seed and settings."""
        if variation == PROMPT_ALONE and self.upload is not None:
            return safe_name(self.title)
        if not 0 <= variation < len(self.pieces):
            raise LookupError(f"there is no variation {variation + 1}")
        options, before = self.options, []
        if self.upload is not None:
            beats = self.upload.prompt.facts.beats
            before = [safe_name(self.title), f"a{self.upload.bars}"]
            before += [beats] if beats != "file" else []
        return "_".join(
            [
                *before,
                *(short for short, _ in self._chosen_of_prompt()),
                safe_name(self.model.name),
                f"b{options.bars}",
                f"s{self.pieces[variation].seed}",
                f"T{_exact(options.temperature)}",
                f"p{_exact(options.top_p)}",
                *(short for short, _ in self._chosen_options()),
                *([f"v{variation + 1}"] if options.variations > 1 else []),
            ]
        )

    def _how_made(self, piece: Piece, facts: list[str]) -> str:
        """Return the settings of a piece, some facts, its size and the speed, in one line."""
        options, upload = self.options, self.upload
        asked = f"{plural(options.bars, 'bar')} requested"
        if upload is not None:
            asked = upload.written or f"{asked} after bar {upload.bars}"
        beats = _BEATS.get(upload.prompt.facts.beats) if upload else None
        return " · ".join(
            [
                f"seed {piece.seed}",
                *([piece.choice.line()] if piece.choice else []),
                asked,
                *([beats] if beats else []),
                f"temperature {_exact(options.temperature)}",
                f"top-p {_exact(options.top_p)}",
                *(words for _, words in self._chosen_of_prompt() if words),
                *(words for _, words in self._chosen_options()),
                *([f"closes in {key_name(piece.key)}"] if piece.key else []),
                *facts,
                plural(piece.new.num_notes, "new note"),
                f"{self.model.name} on {self.model.device}",
            ]
        )

    def _chosen_of_prompt(self) -> Iterator[tuple[str, str]]:
        """Yield each choice of bars or tracks: a short text for file names, and a description.

        The description is empty if `Upload.written` has it.
        """
        if self.upload is None:
            return
        prompt, bars = self.upload.prompt, self.options.prompt_bars
        if prompt.first_bar is not None:
            yield f"h{prompt.first_bar}", f"prompt from bar {prompt.first_bar}"
        elif bars:
            yield f"l{bars}", f"prompt of {plural(bars, 'bar')}"
        rests = prompt.gap.passage.rests if prompt.gap is not None else frozenset[int]()
        for letter, numbers, what in (
            ("r", rests or None, "tracks that rest"),
            ("t", prompt.parts.heard, "prompt tracks"),
            (
                "i",
                prompt.parts.played,
                "tracks that may play" if prompt.gap is None else "",
            ),
        ):
            if numbers is not None:
                names = listed(self.upload.names(numbers)) if what and numbers else ""
                yield f"{letter}{len(numbers)}", f"{what}: {names}" if names else ""

    def _chosen_options(self) -> Iterator[tuple[str, str]]:
        """Yield options that are not at their defaults, in the form of `_chosen_of_prompt`."""
        options = self.options
        for name, option in OPTIONS.items():
            if option.letter and (value := getattr(options, name)) != option.default:
                text = str(value) if option.kind is int else _exact(value)
                yield f"{option.letter}{text}", f"{name.replace('_', '-')} {text}"
        if options.key is not None:
            sharp = re.sub("[#♯]", "-sharp-", options.key).replace("♭", "b")
            yield f"in-{safe_name(sharp)}", f"in {options.key}"
        if options.ending != MusicOptions.ending:
            yield options.ending, _ENDINGS[options.ending]
        for name in ASKED:
            if (text := getattr(options, name)) is not None:
                yield safe_name(f"{name}-{text}")[:24], f"{name} {text}"

    def _seconds(self, piece: Piece) -> float:
        """Return the length of the new music in seconds."""
        end = float(piece.score.seconds_at(piece.score.end_ticks))
        return piece.seconds or end - self.new_music_seconds

    def again(self, piece: Piece) -> MusicOptions:
        """Return the options that generate a variation again.

        If it was stopped, these are only the bars kept.
        """
        options = self.options
        takes = options.num_takes if options.rank_every else 1
        alone = replace(options, seed=piece.seed, variations=1, takes=takes)
        if piece.stopped:
            alone = replace(alone, bars=max(piece.bars, 1), seconds=None)
        return alone

    def _replay(self, piece: Piece) -> bytes:
        """Return the settings that generate a variation again, as JSON."""
        prompt = self.upload.prompt if self.upload else None
        data = self.upload.whole.data if self.upload else None
        options = self.again(piece)
        if piece.studied is not None:
            options = piece.studied.settled(options)
        settings = replay.settings(options, self.model, prompt, data)
        return (json.dumps(settings, indent=2) + "\n").encode()


def prompt_files(upload: Upload | None) -> list[str]:
    """Return the kinds of files of an upload, except sound."""
    if upload is None:
        return []
    return ["midi", *(["score"] if is_for_piano(upload.whole.score) else [])]


def _clock(seconds: float) -> str:
    return f"{round(seconds) // 60}:{round(seconds) % 60:02d}"


def _exact(number: float) -> str:
    """Return a number with two decimals, or with more if two are not exact."""
    text = f"{number:.2f}"
    return text if float(text) == number else str(number)
