"""Making music: the six steps from a MIDI file to its continuation, and the same from nothing.

    read_midi -> encode -> prefill -> sample -> decode -> append_to_midi

Page and commands are thin callers of this module.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
import torch

from app.prompt import Prompt, PromptFacts, read_prompt
from relpe.checkpoint import CheckpointError, find_checkpoint, load_model
from relpe.sampling import SamplingOptions, prefill, sample
from tokenization.midi import read_midi, write_midi
from tokenization.midi_append import append_to_midi
from tokenization.score import Score, Tempo, TimeSignature, Track
from tokenization.tokenizer import load_tokenizer
from tokenization.vocabulary import BAR, BAR_UNIT, BOS, STEPS_PER_BEAT, TIME_SIGNATURE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from relpe.decoder import Decoder, DecoderState
    from tokenization.tokenizer import Grammar, Tokenizer

SECONDS_BETWEEN_REPORTS = 0.1
LARGEST_SEED = 2**31 - 1


@dataclass(frozen=True, kw_only=True)
class MusicOptions:
    """How music is made: the same defaults for page, commands and other callers."""

    bars: int = 16
    """Bars of new music."""
    prompt_bars: int | None = None
    """Bars of the prompt's end that the model hears; all of them where None."""
    seed: int | None = None
    """Seed of the draws; a random one, which the result names, where None."""
    temperature: float = 1.0
    """Below 1 safer, above 1 wilder."""
    top_p: float = 0.95
    """Draws from the likeliest tokens that hold this share of probability."""
    variations: int = 1
    """Pieces made at once, with seeds that count up from `seed`."""

    def __post_init__(self) -> None:
        for name, least, most in (
            ("bars", 1, 4096),
            ("prompt_bars", 1, None),
            ("seed", 0, LARGEST_SEED),
            ("temperature", 0.01, 10),
            ("top_p", 0, 1),
            ("variations", 1, 64),
        ):
            value = getattr(self, name)
            if value is not None and not (least <= value and (most is None or value <= most)):
                limits = f"at least {least}" if most is None else f"{least} to {most}"
                raise ValueError(f"{name.replace('_', ' ')} is {value}, expected {limits}")


@dataclass(frozen=True)
class MusicModel:
    """A model ready to make music."""

    name: str
    decoder: Decoder
    tokenizer: Tokenizer
    device: torch.device
    backend: str = "torch"

    @property
    def parameters(self) -> int:
        """Number of weights."""
        return sum(weights.numel() for weights in self.decoder.parameters())


@dataclass(frozen=True)
class Progress:
    """How far the work is, and the new music so far.

    One score per variation, times from the start of the output.
    """

    bars_done: int
    bars: int
    tokens: int
    notes: int
    seconds: float
    scores: tuple[Score, ...]


@dataclass(frozen=True)
class Piece:
    """One finished piece."""

    midi: bytes
    """The whole: the upload, byte for byte, and the new music."""
    new_midi: bytes
    """The new music alone, from its first bar on."""
    score: Score
    """The whole, as it plays."""
    new: Score
    """The new notes, times from the start of the whole."""
    seed: int
    tokens: int
    notes: int
    tokens_per_second: float


@dataclass(frozen=True)
class Result:
    """All variations, and the work they took."""

    pieces: tuple[Piece, ...]
    seconds: float = 0.0
    tokens: int = 0
    bars: int = 0
    prompt_notes: int = 0

    @property
    def tokens_per_second(self) -> float:
        """Of all variations together, prompt not counted."""
        return self.tokens / self.seconds if self.seconds else 0.0


__all__ = [
    "MusicModel",
    "MusicOptions",
    "Piece",
    "Progress",
    "Prompt",
    "PromptFacts",
    "Result",
    "Steps",
    "continue_prompt",
    "generate_piece",
    "load_music_model",
    "read_prompt",
    "with_seed",
]

Steps: TypeAlias = "Iterator[Progress | Result]"


def never() -> bool:
    """For callers that never stop."""
    return False


def load_music_model(name_or_folder: str | Path = "piano", device: str = "auto") -> MusicModel:
    """A released model by name, or any by its folder, with its tokenizer.

    Raises CheckpointError or TokenizerError where the files cannot be used.
    """
    folder = find_checkpoint(name_or_folder)
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda" and not torch.cuda.is_available():
        raise CheckpointError(
            "found no CUDA device, expected one for --device cuda; use auto or cpu"
        )
    decoder = load_model(folder, device)
    return MusicModel(folder.name, decoder, load_tokenizer(folder), torch.device(device))


def continue_prompt(
    model: MusicModel, prompt: Prompt, options: MusicOptions, stop: Callable[[], bool] = never
) -> Steps:
    """New music after a prompt: yields Progress while it is made, and the Result last.

    Where `stop` gives True the work ends, and the result holds what is there.
    """
    options = with_seed(options)
    ids = prompt.ids
    bars = int(np.count_nonzero(ids == BAR))
    heard_bars = min(options.prompt_bars or bars, bars)
    context = model.tokenizer.crop(ids, bars - heard_bars)
    rules = model.tokenizer.grammar(tempo="never", time_signature=False, end=False).resume(context)
    rules = rules.advance(BAR)
    rules = rules.hold(_still_sounding(prompt, rules.bar_start))
    context = np.append(context, BAR)
    prefix = [BAR, TIME_SIGNATURE + rules.bar_length // BAR_UNIT - 1]

    rows = _Rows(model, prefix, prompt.joint_ticks, rules, options)
    yield from rows.write(context, stop)
    start = rules.bar_start
    pieces = []
    for row in range(options.variations):
        grammar = rows.rules[row].grammar
        end = prompt.joint_ticks + grammar.bar_start + grammar.bar_length - start
        new = _shared_among_hands(rows.score(row, end), prompt.score, prompt.joint_ticks)
        midi = append_to_midi(prompt.data, new, prompt.joint_ticks)
        pieces.append(rows.piece(row, midi, new, _alone(new, prompt)))
    yield rows.result(pieces, prompt_notes=len(model.tokenizer.decode(context).tracks[0]))


def generate_piece(
    model: MusicModel, options: MusicOptions, stop: Callable[[], bool] = never
) -> Steps:
    """Music from nothing: yields Progress while it is made, and the Result last."""
    options = with_seed(options)
    rules = model.tokenizer.grammar(tempo="bar_line", end=False).advance(BOS)
    rows = _Rows(model, [BOS], 0, rules, options)
    yield from rows.write(np.array([BOS]), stop)
    pieces = []
    for row in range(options.variations):
        grammar = rows.rules[row].grammar
        new = rows.score(row, grammar.bar_start + grammar.bar_length)
        midi = write_midi(new)
        pieces.append(rows.piece(row, midi, new, midi))
    yield rows.result(pieces, prompt_notes=0)


def with_seed(options: MusicOptions) -> MusicOptions:
    """The same options with a seed: a random one where there is none."""
    if options.seed is not None:
        return options
    return replace(options, seed=secrets.randbelow(LARGEST_SEED - options.variations))


class _BarLimit(NamedTuple):
    """A grammar that stops a row at the Bar that would open one bar too many."""

    grammar: Grammar
    last_bar: int
    finished: bool = False

    @property
    def allowed(self) -> NDArray[np.bool_]:
        return np.zeros_like(self.grammar.allowed) if self.finished else self.grammar.allowed

    def advance(self, token: int) -> _BarLimit:
        if token == BAR and self.grammar.bar == self.last_bar:
            return self._replace(finished=True)
        return self._replace(grammar=self.grammar.advance(token))


class _Rows:
    """The variations while they are made."""

    def __init__(
        self,
        model: MusicModel,
        prefix: Sequence[int],
        joint: int,
        rules: Grammar,
        options: MusicOptions,
    ) -> None:
        self.model, self.options, self.joint = model, options, joint
        self.ids: list[list[int]] = [list(prefix) for _ in range(options.variations)]
        self._prefix = len(prefix)
        self._first_bar = max(rules.bar, 1)
        limit = self._first_bar + options.bars - 1
        self.rules = [_BarLimit(rules, limit)] * options.variations
        self.seconds = 0.0

    @property
    def bars_done(self) -> int:
        """Bars that all variations have finished."""
        return min(rule.grammar.bar - self._first_bar + rule.finished for rule in self.rules)

    @property
    def tokens(self) -> int:
        """New tokens of all variations."""
        return sum(len(ids) - self._prefix for ids in self.ids)

    def write(self, context: NDArray[np.integer], stop: Callable[[], bool]) -> Iterator[Progress]:
        """Draws tokens after the context until all bars are full or `stop` says so."""
        started = reported = time.monotonic()
        model, options = self.model, self.options
        tokens = torch.from_numpy(np.asarray(context, np.int64))[None].to(model.device)
        state: DecoderState = model.decoder.init_state(1)
        state = prefill(model.decoder, state, tokens[:, :-1], stop=stop).repeat(options.variations)
        assert options.seed is not None
        generators = [
            torch.Generator().manual_seed(options.seed + row) for row in range(options.variations)
        ]
        sampling = SamplingOptions(temperature=options.temperature, top_p=options.top_p)
        last = tokens[:, -1].repeat(options.variations)
        steps = sample(
            model.decoder, state, last, tokens.shape[1] - 1, self.rules, sampling, generators
        )
        for drawn, rules in steps:
            for row, token in enumerate(drawn.tolist()):
                if token >= 0 and not rules[row].finished:
                    self.ids[row].append(token)
            self.rules = list(rules)
            now = time.monotonic()
            self.seconds = now - started
            if now - reported >= SECONDS_BETWEEN_REPORTS:
                reported = now
                yield self.progress()
            if stop():
                break
        yield self.progress()

    def progress(self) -> Progress:
        """Where the work stands."""
        scores = tuple(self.score(row) for row in range(self.options.variations))
        return Progress(
            bars_done=self.bars_done,
            bars=self.options.bars,
            tokens=self.tokens,
            notes=sum(score.num_notes for score in scores),
            seconds=self.seconds,
            scores=scores,
        )

    def score(self, row: int, end: int | None = None) -> Score:
        """New notes of a row, times from the start of the output, cut at `end`."""
        score = self.model.tokenizer.decode(self.ids[row])
        notes = score.tracks[0].notes.copy()
        notes[:, 0] += self.joint
        if end is not None:
            notes = notes[notes[:, 0] < end]
            notes[:, 1] = np.minimum(notes[:, 1], end - notes[:, 0])
        return Score(
            ticks_per_beat=STEPS_PER_BEAT,
            tracks=(Track(notes, name="Piano"),),
            tempos=() if self.joint else score.tempos,
            time_signatures=() if self.joint else score.time_signatures,
            end_ticks=end or 0,
        )

    def piece(self, row: int, midi: bytes, new: Score, new_midi: bytes) -> Piece:
        """A finished row."""
        tokens = len(self.ids[row]) - self._prefix
        return Piece(
            midi=midi,
            new_midi=new_midi,
            score=read_midi(midi) if new.num_notes else new,
            new=new,
            seed=(self.options.seed or 0) + row,
            tokens=tokens,
            notes=new.num_notes,
            tokens_per_second=self.tokens / self.seconds if self.seconds else 0.0,
        )

    def result(self, pieces: Sequence[Piece], prompt_notes: int) -> Result:
        """All rows."""
        return Result(tuple(pieces), self.seconds, self.tokens, self.bars_done, prompt_notes)


def _still_sounding(prompt: Prompt, joint: int) -> list[tuple[int, int]]:
    """Pitches of the upload that sound beyond the joint, and the steps where they end.

    `joint` is where it lies for the grammar, which counts from the first bar that is heard. The
    ends are those of the file: tokens round them, and MIDI would end a note that is struck again
    before with the end of the first.
    """
    resolution = prompt.score.ticks_per_beat
    sounding = []
    for track in prompt.score.tracks:
        if track.is_drum:
            continue
        starts, ends = track.notes[:, 0], track.notes[:, 0] + track.notes[:, 1]
        over = (starts * STEPS_PER_BEAT < prompt.joint_ticks * resolution) & (
            ends * STEPS_PER_BEAT > prompt.joint_ticks * resolution
        )
        late = -(-ends[over] * STEPS_PER_BEAT // resolution) - prompt.joint_ticks + joint
        sounding += zip(track.notes[over, 2].tolist(), late.tolist(), strict=True)
    return sounding


def _shared_among_hands(new: Score, upload: Score, joint: int) -> Score:
    """New notes in the tracks that they continue: the pianos of the upload, by how high these lie.

    An upload of two hands in two tracks goes on in two; without pianos all goes to the fullest
    track.
    """
    before = joint * upload.ticks_per_beat // STEPS_PER_BEAT
    tracks = [t for t in upload.tracks if not t.is_drum and len(_before(t, before))]
    pianos = [track for track in tracks if track.program < 8]
    chosen = (
        pianos[:2]
        if len(pianos) == 2
        else [max(pianos or tracks, key=lambda track: len(_before(track, before)))]
    )
    notes = new.tracks[0].notes
    heights = np.array([np.median(_before(track, before)[-200:, 2]) for track in chosen])
    nearest = np.abs(notes[:, 2, None] - heights).argmin(1)
    return new.with_tracks(
        replace(track, notes=notes[nearest == index], controls=[], bends=[])
        for index, track in enumerate(chosen)
    )


def _before(track: Track, end_ticks: int) -> NDArray[np.int64]:
    """Notes that begin before a time."""
    return track.notes[track.notes[:, 0] < end_ticks]


def _alone(new: Score, prompt: Prompt) -> bytes:
    """The new music as a file of its own, in the prompt's tempo and metre."""
    joint = prompt.joint_ticks * prompt.score.ticks_per_beat // STEPS_PER_BEAT
    tempo = [t.bpm for t in prompt.score.tempos if t.tick <= joint] or [120.0]
    metres = [t for t in prompt.heard.time_signatures if t.tick <= prompt.joint_ticks]
    metre = metres[-1] if metres else TimeSignature(0, 4, 4)
    shift = np.array([prompt.joint_ticks, 0, 0, 0])
    tracks = (replace(t, notes=t.notes - shift, chunk=None) for t in new.tracks if len(t))
    return write_midi(
        Score(
            STEPS_PER_BEAT,
            tuple(tracks),
            (Tempo(0, tempo[-1]),),
            (TimeSignature(0, metre.numerator, metre.denominator),),
            max(new.end_ticks - prompt.joint_ticks, 0),
        )
    )
