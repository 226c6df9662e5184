"""Continues MIDI files, in six steps, and generates music from nothing.

    read_midi -> encode -> prefill -> sample -> decode -> append_to_midi

The page, the commands and batches use this module.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from app.compose.engine import Engine
from app.compose.fill.passage import Passage
from app.compose.options import MusicOptions, with_seed
from app.compose.piece import Draft, Opening, Piece
from app.compose.prompt.prompt import passage_options, read_prompt
from app.compose.study import study_prompt
from app.compose.tracks import mark_drums
from relpe.decoding.generate import Sample
from tokenization.analysis.accidents import twins
from tokenization.measures.takes import distinct
from tokenization.midi import append_to_midi, read_midi, replace_in_midi, write_midi
from tokenization.midi.drums import drum_places
from tokenization.midi.tuning import Tuning
from tokenization.score import Score, Tempo, TimeSignature

if TYPE_CHECKING:
    from app.compose.models import MusicModel
    from app.compose.prompt.prompt import Prompt

SECONDS_BETWEEN_REPORTS = 0.1


@dataclass(frozen=True)
class Progress:
    """Progress of the generation, and the new music so far."""

    bars_done: int
    bars: int
    tokens: int
    """0 while the model reads the prompt."""
    notes: int
    seconds: float
    scores: tuple[Score, ...]
    """One per variation; times count from the start of the output."""
    part_done: float = 0.0
    """Fraction of the requested bars or seconds that is done, 0 to 1."""
    done_ticks: int = 0
    """Tick before which the notes of the first variation do not change any more."""
    preparing: bool = False
    """Whether code is being compiled; this takes a while the first time on a machine."""
    reading_seconds: float = 0.0
    """Part of `seconds` in which the model read the prompt."""
    place: int = 0
    """Place in the queue of the model: 1 for the next job, 0 once generation has started."""
    seconds_left: float | None = None
    """Estimated time in the queue, if the job waits and an estimate exists."""
    studying: float | None = None
    """Fraction of the study of the prompt that is done, 0 to 1; None before and after it."""


@dataclass(frozen=True)
class Result:
    """All variations, with statistics of their generation."""

    pieces: tuple[Piece, ...]
    seconds: float = 0.0
    tokens: int = 0
    bars: int = 0
    """Number of bars of the shortest variation."""
    prompt_notes: int = 0
    prompt_tokens: int = 0
    reading_seconds: float = 0.0
    """Part of `seconds` in which the model read the prompt."""
    rows: int = 1
    """Number of sequences that were generated: the takes of all pieces."""

    @property
    def tokens_per_second(self) -> float:
        """Tokens of all variations per second, without the prompt and the time to read it."""
        return self._per_second(self.tokens, self.seconds - self.reading_seconds)

    @property
    def bars_per_second(self) -> float:
        """Bars of all variations per second, without the time to read the prompt."""
        bars = sum(piece.bars for piece in self.pieces)
        return self._per_second(bars, self.seconds - self.reading_seconds)

    @property
    def real_time_factor(self) -> float:
        """Seconds of new music per second of work, of all variations together."""
        return self._per_second(sum(piece.seconds for piece in self.pieces), self.seconds)

    @staticmethod
    def _per_second(amount: float, seconds: float) -> float:
        return amount / seconds if seconds > 0 else 0.0


Steps: TypeAlias = Generator[Progress | Result, None, None]
"""Yields Progress at intervals, and finally the Result."""


def continue_midi(
    model: MusicModel,
    midi: bytes,
    options: MusicOptions | None = None,
    *,
    name: str = "prompt.mid",
    on_progress: Callable[[Progress], object] = lambda _: None,
) -> Result:
    """Continue a MIDI file: `result.pieces[0].midi` is the file with new music appended.

    Every event of the prompt is kept; new music begins at the next bar line. The same seed gives
    the same bytes on the same machine. `name` is the name of the file in error messages.

    Raises:
        MidiError: the file cannot be read or continued.
    """
    options = options or MusicOptions()
    score = mark_drums(read_midi(midi, name=name), options.drums, name)
    tokenizer, beats = model.tokenizer, options.beats
    prompt = read_prompt(midi, name, tokenizer=tokenizer, beats=beats, score=score)  # encode
    return _result(continue_prompt(model, prompt, options), on_progress)


def fill_midi(
    model: MusicModel,
    midi: bytes,
    passage: Passage,
    options: MusicOptions | None = None,
    *,
    name: str = "piece.mid",
    on_progress: Callable[[Progress], object] = lambda _: None,
) -> Result:
    """Write some bars and tracks of a MIDI file again, or a new track.

    Everything else of the file is kept, event for event. The length of the passage replaces that of
    the options. Otherwise like `continue_midi`.

    Raises:
        MidiError: the file cannot be read, or has no such bars or tracks.
        TokenizerError: the model cannot write the passage.
    """
    options = options or MusicOptions()
    score = mark_drums(read_midi(midi, name=name), options.drums, name)
    tokenizer, beats = model.tokenizer, options.beats
    prompt = read_prompt(midi, name, tokenizer=tokenizer, beats=beats, passage=passage, score=score)
    options = passage_options(options, passage, prompt)
    return _result(continue_prompt(model, prompt, options), on_progress)


def generate_midi(
    model: MusicModel,
    options: MusicOptions | None = None,
    *,
    on_progress: Callable[[Progress], object] = lambda _: None,
) -> Result:
    """Generate a piece from nothing: `result.pieces[0].midi` is a MIDI file."""
    return _result(generate_piece(model, options or MusicOptions()), on_progress)


def continue_prompt(
    model: MusicModel,
    prompt: Prompt,
    options: MusicOptions,
    stop: Callable[[], bool] = lambda: False,
) -> Steps:
    """Continue a prompt. Yields Progress, and finally the Result.

    Generation ends early when `stop` returns True; the result then contains the music so far.
    """
    yield from _generate(Variations(Opening.after(model, prompt, with_seed(options))), stop)


def generate_piece(
    model: MusicModel, options: MusicOptions, stop: Callable[[], bool] = lambda: False
) -> Steps:
    """Generate a piece from nothing; yield and stops like `continue_prompt`."""
    yield from _generate(Variations(Opening.of_nothing(model, with_seed(options))), stop)


def _generate(variations: Variations, stop: Callable[[], bool]) -> Steps:
    """Generate with a new engine; `app.server` shares one between users instead."""
    yield from variations.study(stop)
    for _ in variations.opening.model.preparing():
        yield replace(variations.progress(), preparing=True)
        if stop():
            yield variations.result()
            return
    engine = Engine(variations.opening.model)
    variations.start(engine)
    reported = time.monotonic()
    while not variations.done:
        engine.step()  # prefill, then sample
        variations.tick()
        if time.monotonic() - reported >= SECONDS_BETWEEN_REPORTS:
            reported = time.monotonic()
            yield variations.progress()
        if stop():
            break
    if variations.error is not None:
        raise variations.error
    yield variations.progress()
    yield variations.result()


def finish(draft: Draft, tokens_per_second: float = 0.0) -> Piece:
    """Convert a draft to a finished piece, with its files and scores."""
    new, prompt = draft.score(ended=True), draft.opening.prompt  # decode
    if prompt is None:
        midi = alone = write_midi(new)
        drums = {}
        timed, start = new, 0
    else:
        midi = _written(draft, new, prompt)
        drums = drum_places(prompt.score)
        alone = _alone(new, prompt)
        timed, start = prompt.score, prompt.splice_ticks
    begin, end = timed.seconds_at(np.array([start, new.end_ticks])).tolist()
    return Piece(
        midi=midi,
        new_midi=alone,
        score=read_midi(midi, drums=drums) if new.num_notes or prompt else new,
        new=new,
        seed=draft.seed,
        tokens=draft.tokens,
        notes=new.num_notes,
        tokens_per_second=tokens_per_second,
        bars=draft.bars_begun,
        seconds=end - begin,
        stopped=not draft.rule.finished,
        choice=draft.choice,
        accidents=draft.accidents(),
        key=draft.opening.key if draft.opening.options.ending == "cadence" else None,
        studied=draft.opening.studied,
    )


def _written(draft: Draft, new: Score, prompt: Prompt) -> bytes:
    """Return the upload with the new music."""
    gap, bars, drums = prompt.gap, draft.opening.bars, drum_places(prompt.score)
    if gap is None:
        return append_to_midi(prompt.data, new, prompt.splice_ticks, drums)
    assert bars is not None
    # after generation was stopped, the old notes stay in bars that were not begun
    is_whole = draft.bars_begun >= gap.stop - gap.first
    stop = gap.stop_tick if is_whole else bars.line(draft.bars_begun)
    return replace_in_midi(prompt.data, new, gap.tracks, gap.start_tick, stop, drums)


class Variations:
    """Pieces with the same opening and different seeds that are generated together."""

    def __init__(self, opening: Opening) -> None:
        """Take the number of variations and the first seed from the options of the opening."""
        self.opening, self.options = opening, opening.options
        first = self.options.seed or 0
        self.seeds = range(first, first + self.options.variations)
        self.drafts = [Draft(opening, Sample(seed, opening.rule)) for seed in self.seeds]
        self.seconds = 0.0
        """Duration of the work so far."""
        self.reading_seconds = 0.0
        """Part of `seconds` in which the model read the prompt."""
        self._started = 0.0

    def study(self, stop: Callable[[], bool]) -> Iterator[Progress]:
        """Have the model study the prompt, if the options ask for it; yield Progress.

        Afterwards, the opening has a copy of the model, unless the study did not help.
        """
        if not self.studies:
            return
        yield replace(self.progress(), studying=0.0)
        for step in study_prompt(self.opening, stop):
            if isinstance(step, Opening):
                self.opening = step
            else:
                yield replace(self.progress(), studying=step)

    def start(self, engine: Engine) -> None:
        """Add the pieces to an engine, whose steps generate them."""
        self._started = time.monotonic()
        self.drafts = engine.add(self.opening, self.seeds)

    def tick(self) -> None:
        """Update the duration of the work."""
        self.seconds = time.monotonic() - self._started
        if not self.tokens and self.opening.prompt is not None:
            self.reading_seconds = self.seconds

    def snapshot(self) -> Variations:
        """Return a copy that does not change while generation continues."""
        taken = copy(self)
        taken.drafts = [copy(draft) for draft in self.drafts]
        for draft in taken.drafts:
            draft.samples = tuple(replace(one, tokens=one.tokens[:]) for one in draft.samples)
        return taken

    def progress(self) -> Progress:
        """Return the progress of the work."""
        scores = tuple(draft.score() for draft in self.drafts)
        return Progress(
            bars_done=self.bars_done,
            bars=self.options.bars,
            tokens=self.tokens,
            notes=sum(score.num_notes for score in scores),
            seconds=self.seconds,
            scores=scores,
            part_done=self.part_done,
            done_ticks=self.drafts[0].done_ticks,
            reading_seconds=self.reading_seconds,
        )

    def result(self) -> Result:
        """Return the music so far; the takes of different variations are different pieces."""
        rankings = [draft.ranking for draft in self.drafts if draft.ranking is not None]
        if len(rankings) == len(self.drafts):
            for draft, ranking, index in zip(
                self.drafts, rankings, distinct(rankings), strict=True
            ):
                draft.choice = ranking.choose(index)
        seconds = self.seconds - self.reading_seconds
        speed = self.tokens / seconds if seconds > 0 else 0.0
        pieces = _with_twins([finish(draft, speed) for draft in self.drafts], self.drafts)
        opening = self.opening
        return Result(
            pieces,
            seconds=self.seconds,
            tokens=self.tokens,
            bars=self.bars_done,
            prompt_notes=opening.notes,
            prompt_tokens=len(opening.context) if opening.prompt else 0,
            reading_seconds=self.reading_seconds,
            rows=self.rows,
        )

    @property
    def studies(self) -> bool:
        """Whether the model is to study the prompt."""
        options = self.options
        return self.opening.prompt is not None and (options.study or options.study_steps) > 0

    @property
    def rows(self) -> int:
        """Number of sequences that are generated: the takes of all pieces."""
        return self.options.num_takes * len(self.seeds)

    @property
    def done(self) -> bool:
        """Whether all pieces are finished."""
        return all(draft.done for draft in self.drafts)

    @property
    def error(self) -> Exception | None:
        """The error that occurred while the model read the prompt, or None."""
        return self.drafts[0].sample.error

    @property
    def bars_done(self) -> int:
        """Number of notated bars that are finished in all pieces."""
        return min(draft.bars_done for draft in self.drafts)

    @property
    def part_done(self) -> float:
        """Fraction of the requested bars or seconds that is finished in all pieces, 0 to 1."""
        return min(draft.part_done for draft in self.drafts)

    @property
    def bars_left(self) -> float:
        """Number of bars left; a length in seconds is converted at two seconds per bar."""
        seconds = self.options.seconds
        bars = self.options.bars if seconds is None else seconds / 2
        return bars * (1 - self.part_done)

    @property
    def tokens_to_read(self) -> int:
        """Number of tokens of the prompt; 0 once the model has read it."""
        is_read = self.tokens or self.opening.prompt is None
        return 0 if is_read else len(self.opening.context)

    @property
    def tokens(self) -> int:
        """Number of tokens generated, of all pieces together."""
        return sum(len(sample.tokens) for draft in self.drafts for sample in draft.samples)


def _with_twins(pieces: Sequence[Piece], drafts: Sequence[Draft]) -> tuple[Piece, ...]:
    """Return the pieces; of those that are the same piece, all but the first say so."""
    marked = list(pieces)
    if len(drafts) > 1 and not drafts[0].has_gap:
        scores, firsts, stops = zip(*(draft.with_context() for draft in drafts), strict=True)
        for one, other in reversed(twins(scores, firsts[0], min(stops), drafts[0].opening.returns)):
            lines = (pieces[other].accidents, f"nearly the same as variation {one + 1}")
            marked[other] = replace(pieces[other], accidents="; ".join(filter(None, lines)))
    return tuple(marked)


def _result(steps: Steps, on_progress: Callable[[Progress], object]) -> Result:
    for step in steps:
        if isinstance(step, Result):
            return step
        on_progress(step)
    raise AssertionError("the last step is a Result")


def _alone(new: Score, prompt: Prompt) -> bytes:
    """Return the new music as a separate file, with the tempos and metres that apply to it."""
    splice, score = prompt.splice_ticks, prompt.score
    # of all changes up to the splice, the last one applies
    tempos = {max(tick - splice, 0): bpm for tick, bpm in ((0, 120.0), *score.tempos)}
    metres = {max(t - splice, 0): metre for t, *metre in ((0, 4, 4), *score.time_signatures)}
    length = max(new.end_ticks - splice, 1)
    tuning = Tuning.of_score(score)
    tracks = (
        tuning.alone(replace(t, notes=t.notes - [splice, 0, 0, 0], chunk=None))
        for t in new.tracks
        if len(t)
    )
    return write_midi(
        Score(
            new.ticks_per_beat,
            tuple(tracks),
            tuple(Tempo(tick, bpm) for tick, bpm in tempos.items() if tick < length),
            tuple(TimeSignature(tick, *metre) for tick, metre in metres.items() if tick < length),
            length,
        )
    )
