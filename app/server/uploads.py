"""Reads uploaded files, and selects the part of them that is the prompt."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from app.compose.new_bars import in_bars
from app.compose.options import MusicOptions
from app.compose.plan.lead_sheet import LeadSheet
from app.compose.plan.sections import with_tail
from app.compose.prompt.prompt import passage_options, read_prompt
from app.compose.tracks import instrument_name, mark_drums
from app.player.frames import (
    Frame,
    GapFrame,
    PromptFrame,
    TimelineFrame,
    pack_sheet,
    pack_tracks,
    timeline,
)
from app.server.sandbox import LimitError, Sandbox
from app.text import listed
from tokenization.errors import MidiError, TokenizerError
from tokenization.midi import read_midi
from tokenization.midi.musicxml import read_music

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from app.compose.fill.passage import Passage
    from app.compose.models import Models, MusicModel
    from app.compose.options import BeatSource
    from app.compose.prompt.prompt import Prompt
    from tokenization.analysis.form import Phrase
    from tokenization.midi.drums import Place
    from tokenization.score import Score

P = ParamSpec("P")
T = TypeVar("T")

MOST_NOTES = 100_000
"""Maximum notes of an upload, about an hour of orchestral music; more would delay other users."""
MOST_CONTROLS = 500_000
"""Maximum controller and pitch bend events; those of a channel count for each of its tracks."""
READER = Sandbox(
    # compiled before an upload comes, which would exceed its time limit
    preload=[
        "app.compose.plan.lead_sheet",
        "app.compose.prompt.prompt",
        "tokenization.midi.event_bytes:warm_up",
    ]
)
"""Reads all uploads of this process."""


@dataclass(frozen=True)
class Upload:
    """An accepted file, and its prompt."""

    whole: Prompt
    prompt: Prompt
    model: MusicModel
    """Continues the prompt."""
    score: Score
    """The whole file as it was read."""
    sheet: LeadSheet
    """Form, key and chords of the whole file."""
    passage: Passage | None = None
    """The bars and tracks that are to be written; None: new music follows at the end."""
    problem: str = ""
    """Why the model cannot write the passage."""

    @property
    def title(self) -> str:
        """Name of the file without suffix."""
        return Path(self.whole.name).stem

    def named(self, title: str) -> Upload:
        """Return the whole file, with another title."""
        whole = replace(self.whole, name=f"{title}.mid")
        return replace(self, whole=whole, prompt=whole, passage=None, problem="")

    @property
    def written(self) -> str:
        """What is to be written, such as `bars 9 to 16` or `Bass, bar 3`; empty for the end."""
        if self.passage is None:
            return ""
        first, last = self.passage.first_bar, self.last_bar
        which = f"bar {first}" if first == last else f"bars {first:,} to {last:,}"
        names = self.names(self.passage.tracks or ())
        if (new := self.passage.new_track) is not None:
            names.append(instrument_name(new))
        return f"{listed(names)}, {which}" if names else which

    def names(self, tracks: Iterable[int]) -> list[str]:
        """Return the names of tracks, given by their numbers in the file."""
        numbers = frozenset(tracks)
        return [row.name for row in self.whole.facts.rows if row.id in numbers]

    @property
    def last_bar(self) -> int:
        """The last bar of the passage, or of the whole file."""
        last = self.passage.last_bar if self.passage else None
        return self.whole.bars if last is None else last

    def with_length(self, options: MusicOptions) -> MusicOptions:
        """Return the options with the number of bars of the new music.

        A passage determines it, and its notes end at its last bar line.
        """
        if self.passage is None:
            return in_bars(options, self.prompt)
        return replace(passage_options(options, self.passage, self.prompt), ending="bar")

    @property
    def splice(self) -> float:
        """Start of the new music in quarter notes."""
        return self.prompt.splice_ticks / self.prompt.score.ticks_per_beat

    @property
    def bars(self) -> int:
        """Bars before the new music."""
        return self.prompt.bars_before

    @property
    def first_bar(self) -> int:
        """The first bar that the model reads, counted from 1; in a gap, that of the file."""
        if self.prompt.gap is not None:
            return 1
        return self.prompt.first_bar_heard(MusicOptions.prompt_bars)

    def choose(
        self,
        first_bar: int | None,
        last_bar: int,
        heard: frozenset[int] | None,
        played: frozenset[int] | None,
    ) -> Upload:
        """Return the same file with another prompt; all tracks stay in the file.

        Args:
            first_bar: the first bar that the model reads, counted from 1; None: by the options.
            last_bar: the last bar before the new music; what follows it is cut off.
            heard: ids, in the frames, of the tracks that the model reads; None: all.
            played: ids of the tracks that may play in the new music; None: all.

        Raises:
            MidiError: there is no such bar or track, or no track with music to read or to play.
        """
        if (first_bar, last_bar, heard, played) == (None, self.whole.bars, None, None):
            return replace(self, prompt=self.whole, passage=None, problem="")
        return self._with_prompt(last_bar, first_bar=first_bar, heard=heard, played=played)

    def writing(self, passage: Passage) -> Upload:
        """Return the same file, of which a passage is to be written.

        Raises:
            MidiError: there are no such bars or tracks.
            TokenizerError: the model cannot write them.
        """
        return self._with_prompt(passage=passage)

    def _with_prompt(
        self,
        last_bar: int | None = None,
        passage: Passage | None = None,
        **parts: Any,  # noqa: ANN401 - of `read_prompt`
    ) -> Upload:
        """Return the same file with the prompt that `read_prompt` reads of it."""
        whole = self.whole
        prompt = _in_sandbox(
            whole.name,
            read_prompt,
            whole.data,
            whole.name,
            last_bar,
            tokenizer=self.model.tokenizer,
            beats=whole.facts.beats,
            score=self.score,
            passage=passage,
            **parts,
        )
        prompt = replace(prompt, sections=self.sheet.phrases)
        return replace(self, prompt=prompt, passage=passage, problem="")

    def writing_by_any(self, passage: Passage, models: Models, style: str = "") -> Upload:
        """Call `writing`, with another one of `models` if only that one can."""
        try:
            return self.writing(passage)
        except TokenizerError:
            other = models.to_fill(self.whole.score, passage, style)
            if other is self.model:
                raise
            return self.for_model(other).writing(passage)

    def unable(self, passage: Passage, problem: str) -> Upload:
        """Return the whole file, of which the model cannot write a passage.

        `problem` is a sentence.
        """
        return replace(self, prompt=self.whole, passage=passage, problem=problem)

    def counted_by(self, beats: BeatSource) -> Upload:
        """Return the whole file, with bars and beats from another source.

        Raises:
            MidiError: the file cannot be read in this way.
        """
        return _whole(self.whole.data, self.whole.name, self.model, beats, self.score)

    def with_drums(self, score: Score, model: MusicModel) -> Upload:
        """Return the whole file, whose score has other drums, for a model that suits it.

        Raises:
            MidiError: the model cannot continue it.
        """
        return _whole(self.whole.data, self.whole.name, model, self.whole.facts.beats, score)

    def for_model(self, model: MusicModel) -> Upload:
        """Return the whole file, for another model.

        Raise MidiError if the model cannot continue it.
        """
        return replace(self, model=model).with_sections(self.sheet.phrases)

    def with_sections(self, sections: tuple[Phrase, ...]) -> Upload:
        """Return the whole file, with sections that are known, see `find_form`."""
        whole = self.whole
        return _whole(whole.data, whole.name, self.model, whole.facts.beats, self.score, sections)

    def frame(self) -> Frame:
        """Return the frame of the player before there is new music."""
        return Frame(
            job=secrets.token_hex(4),
            phase="prompt",
            title=self.title,
            subtitle="" if self.passage else f"New music begins after bar {self.bars}",
            timeline=self.timeline(self.whole.score),
            prompt=self.prompt_frame(),
            variations=[],
        )

    def timeline(self, score: Score, end_ticks: int = 0) -> TimelineFrame:
        """Return the timeline of the file or a continuation, with bars from the chosen source."""
        return timeline(score, end_ticks, self.prompt.timing.bar_lines(score, end_ticks))

    def prompt_frame(self) -> PromptFrame:
        """Return the splice and all tracks of the file, with those that the model reads marked."""
        score, parts = self.whole.score, self.prompt.parts
        tracks = pack_tracks(score)
        for frame, track, row in zip(tracks, score.tracks, self.prompt.facts.rows, strict=True):
            frame["id"], frame["instrument"] = row.id, row.instrument
            frame["heard"], frame["played"] = parts.hears(track), parts.may_play(track)
        first = self.prompt.line(self.first_bar - 1) / self.prompt.score.ticks_per_beat
        bpm = self.prompt.facts.bpm
        frame = PromptFrame(tracks=tracks, splice=self.splice, first=first, bpm=bpm)
        if (sheet := pack_sheet(self.sheet, self.timeline(score))) is not None:
            frame["sheet"] = sheet
        if self.passage is not None:
            frame["gap"] = self._gap_frame(self.passage)
            if self.problem and self.passage.tracks is not None:
                for track in tracks:
                    track["played"] = track.get("id") in self.passage.tracks
        return frame

    def _gap_frame(self, passage: Passage) -> GapFrame:
        tracks = None if passage.tracks is None else sorted(passage.tracks)
        frame = GapFrame(
            first=passage.first_bar,
            last=self.last_bar,
            tracks=tracks,
            rests=sorted(passage.rests),
            instrument=passage.instrument,
        )
        if self.problem:
            frame["problem"] = self.problem
        return frame


def read_upload(
    path: Path,
    max_bytes: int,
    models: Models,
    beats: BeatSource = "auto",
    style: str = "",
    drums: str | None = None,
) -> Upload:
    """Read a file as an upload whose continuation begins at its end.

    The model is the automatic choice among `models` for what is needed. `drums` are those of
    `MusicOptions`.

    Raises:
        MidiError: it cannot be continued; the message is one sentence for the user.
        CheckpointError, TokenizerError: the model that would continue it cannot be used.
    """
    try:
        with path.open("rb") as file:
            size, data = path.stat().st_size, file.read(max_bytes)
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
    data, score = _in_sandbox(path.name, read_music, data, path.name)
    score = mark_drums(score, drums, path.name)
    return _accepted(data, score, path.name, models, beats, style)


def upload_of(
    data: bytes,
    name: str,
    models: Models,
    beats: BeatSource = "auto",
    sections: tuple[Phrase, ...] = (),
    drums: Mapping[Place, bool] | None = None,
) -> Upload:
    """Return a MIDI file as an upload whose continuation begins at its end.

    Raise the errors of `read_upload`.

    Its first `sections` are known, see `find_form`, and some of its `drums`, see `read_midi`.
    """
    score = _in_sandbox(name, read_midi, data, name=name, drums=drums)
    return _accepted(data, score, name, models, beats, sections=sections)


def _accepted(
    data: bytes,
    score: Score,
    name: str,
    models: Models,
    beats: BeatSource,
    style: str = "",
    sections: tuple[Phrase, ...] = (),
) -> Upload:
    """Return a file with its score as an upload. Raises MidiError if it has too much music."""
    if score.num_notes > MOST_NOTES:
        raise MidiError(
            f"{name}: found {score.num_notes:,} notes, expected at most {MOST_NOTES:,}; use a "
            "part of it"
        )
    controls = sum(len(track.controls) + len(track.bends) for track in score.tracks)
    if controls > MOST_CONTROLS:
        raise MidiError(
            f"{name}: found {controls:,} controllers and bends in all tracks together, "
            f"expected at most {MOST_CONTROLS:,}; remove some of them and export it again"
        )
    return _whole(data, name, models.to_continue(score, style), beats, score, sections)


def _whole(
    data: bytes,
    name: str,
    model: MusicModel,
    beats: BeatSource,
    score: Score,
    sections: tuple[Phrase, ...] = (),
) -> Upload:
    whole = _in_sandbox(
        name, read_prompt, data, name, tokenizer=model.tokenizer, beats=beats, score=score
    )
    sheet = _in_sandbox(name, LeadSheet.of, whole.timing.counted, sections)
    sheet = replace(sheet, phrases=with_tail(sheet.phrases, whole.facts.bars))
    whole = replace(whole, sections=sheet.phrases)
    return Upload(whole, whole, model, score, sheet)


def _in_sandbox(
    file_name: str, function: Callable[P, T], /, *arguments: P.args, **named: P.kwargs
) -> T:
    """Call a function that reads a file; raises MidiError if it exceeds a limit."""
    try:
        return READER.call(function, *arguments, **named)
    except LimitError as error:
        raise MidiError(
            f"{file_name}: reading the file {error}; use a part of it or thin it out"
        ) from error
