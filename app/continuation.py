"""Making music: the six steps from a MIDI file to its continuation, and the same from nothing.

    read_midi -> encode -> prefill -> sample -> decode -> append_to_midi

Page and commands are thin callers of this module.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import torch

from app.new_bars import BarRule, NewBars
from app.prompt import Prompt, PromptFacts, read_prompt
from relpe.checkpoint import CheckpointError, find_checkpoint, load_model
from relpe.sampling import SamplingOptions, prefill_steps, sample
from tokenization.midi import read_midi, write_midi
from tokenization.midi_append import append_to_midi
from tokenization.quantize import nearest_step, quantize_tempos
from tokenization.score import Score, Tempo, TimeSignature, Track
from tokenization.tokenizer import load_tokenizer
from tokenization.vocabulary import (
    BAR,
    BOS,
    MIN_BPM,
    PITCH,
    POSITION,
    TEMPO,
    TIME_SIGNATURE,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from relpe.decoder import Decoder, DecoderState
    from tokenization.tokenizer import Tokenizer

SECONDS_BETWEEN_REPORTS = 0.1
LARGEST_SEED = 2**31 - 1


@dataclass(frozen=True, kw_only=True)
class MusicOptions:
    """How music is made: the same defaults for page, commands and other callers."""

    bars: int = 16
    """Bars of new music, as the prompt writes them."""
    prompt_bars: int | None = None
    """Bars of the prompt's end that the model hears; as many as 16,384 tokens hold where None."""
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

    There are no tokens while the prompt is being read. One score per variation, times from the
    start of the output.
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
    joint = prompt.joint_ticks
    bars = NewBars.after(prompt, options.bars)
    context = model.tokenizer.crop(prompt.ids, prompt.first_heard(options.prompt_bars))
    context = np.append(context, _opening(prompt, context, bars))
    grammar = model.tokenizer.grammar(tempo="never", end=False).resume(context)
    grammar = grammar.hold(_still_sounding(prompt, bars, grammar.bar_start))
    last_bar = grammar.bar + len(bars.vocabulary) - 1

    prefix = [BAR, bars.vocabulary[0].time_signature]
    rules = BarRule(grammar, grammar.bar, last_bar, bars.vocabulary)
    rows = _Rows(model, prefix, rules, options, bars)
    yield from rows.write(context, stop)
    pieces = []
    for row in range(options.variations):
        new = _shared_among_hands(rows.score(row, ended=True), prompt.score, joint)
        midi = append_to_midi(prompt.data, new, joint)
        pieces.append(rows.piece(row, midi, new, _alone(new, prompt)))
    yield rows.result(pieces, prompt_notes=model.tokenizer.decode(context).num_notes)


def generate_piece(
    model: MusicModel, options: MusicOptions, stop: Callable[[], bool] = never
) -> Steps:
    """Music from nothing: yields Progress while it is made, and the Result last."""
    options = with_seed(options)
    grammar = model.tokenizer.grammar(tempo="bar_line", end=False).advance(BOS)
    rows = _Rows(model, [BOS], BarRule(grammar, 1, options.bars), options)
    yield from rows.write(np.array([BOS]), stop)
    pieces = []
    for row in range(options.variations):
        new = rows.score(row, ended=True)
        midi = write_midi(new)
        pieces.append(rows.piece(row, midi, new, midi))
    yield rows.result(pieces, prompt_notes=0)


def with_seed(options: MusicOptions) -> MusicOptions:
    """The same options with a seed: a random one where there is none."""
    if options.seed is not None:
        return options
    return replace(options, seed=secrets.randbelow(LARGEST_SEED - options.variations))


class _Rows:
    """The variations while they are made; of a continuation, with the bars that it has."""

    def __init__(
        self,
        model: MusicModel,
        prefix: Sequence[int],
        rules: BarRule,
        options: MusicOptions,
        bars: NewBars | None = None,
    ) -> None:
        self.model, self.options, self.bars = model, options, bars
        self.ids: list[list[int]] = [list(prefix) for _ in range(options.variations)]
        self._prefix = len(prefix)
        self.rules = [rules] * options.variations
        self.seconds = 0.0

    @property
    def bars_done(self) -> int:
        """Bars that all variations have finished, as they are written."""
        return min(rule.written_bar + rule.finished for rule in self.rules)

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
        for _, newest in prefill_steps(model.decoder, state, tokens[:, :-1]):
            state = newest
            now = time.monotonic()
            if now - reported >= SECONDS_BETWEEN_REPORTS:
                reported = now
                yield self.progress()
            if stop():
                break
        state = state.repeat(options.variations)
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

    def score(self, row: int, *, ended: bool = False) -> Score:
        """New notes of a row, times from the start of the output.

        Where the row has `ended`, they are cut at the end of the bar that it came to.
        """
        score, rule = self.model.tokenizer.decode(self.ids[row]), self.rules[row]
        notes = score.tracks[0].notes.copy()
        end = rule.grammar.bar_start + rule.grammar.bar_length
        if self.bars is not None:
            bars = self.bars.map
            score, notes = Score(bars.ticks_per_beat), bars.notes(notes)
            end = int(bars.lines[rule.written_bar + 1])
        if ended:
            notes = notes[notes[:, 0] < end]
            notes[:, 1] = np.minimum(notes[:, 1], end - notes[:, 0])
        return replace(score, tracks=(Track(notes, name="Piano"),), end_ticks=end if ended else 0)

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


def _opening(prompt: Prompt, context: NDArray[np.integer], bars: NewBars) -> list[int]:
    """Ids that open the first new bar, with the metre and tempo that the file writes there."""
    opening = [BAR]
    metre = bars.vocabulary[0].time_signature
    if context[(context >= TIME_SIGNATURE) & (context < POSITION)][-1] != metre:
        opening.append(metre)
    tempos = quantize_tempos(prompt.score)
    joint = nearest_step(prompt.joint_ticks, prompt.score.ticks_per_beat)
    bpm = int(tempos.bpm[np.searchsorted(tempos.steps, joint, side="right") - 1])
    if context[(context >= TEMPO) & (context < PITCH)][-1] != bpm + TEMPO - MIN_BPM:
        opening += [POSITION, bpm + TEMPO - MIN_BPM]
    return opening


def _still_sounding(prompt: Prompt, bars: NewBars, start: int) -> list[tuple[int, int]]:
    """Pitches of the prompt that sound beyond the joint, and the steps where they end.

    `start` is where the joint lies for the grammar, which counts from the first bar that is heard.
    The ends are those of the file: tokens round them, and MIDI would end a note that is struck
    again before with the end of the first.
    """
    sounding = []
    for track in prompt.score.tracks:
        if track.is_drum:
            continue
        begins, ends = track.notes[:, 0], track.notes[:, 0] + track.notes[:, 1]
        over = (begins < prompt.joint_ticks) & (ends > prompt.joint_ticks)
        late = bars.map.steps(ends[over])
        late += bars.map.ticks(late) < ends[over]
        sounding += zip(track.notes[over, 2].tolist(), (late + start).tolist(), strict=True)
    return sounding


def _shared_among_hands(new: Score, upload: Score, joint: int) -> Score:
    """New notes in the tracks that they continue: the pianos of the upload, by how high these lie.

    An upload of two hands in two tracks goes on in two; without pianos all goes to the fullest
    track.
    """
    tracks = [t for t in upload.tracks if not t.is_drum and len(_before(t, joint))]
    pianos = [track for track in tracks if track.program < 8]
    chosen = (
        pianos[:2]
        if len(pianos) == 2
        else [max(pianos or tracks, key=lambda track: len(_before(track, joint)))]
    )
    notes = new.tracks[0].notes
    heights = np.array([np.median(_before(track, joint)[-200:, 2]) for track in chosen])
    nearest = np.abs(notes[:, 2, None] - heights).argmin(1)
    return new.with_tracks(
        replace(track, notes=notes[nearest == index], controls=[], bends=[])
        for index, track in enumerate(chosen)
    )


def _before(track: Track, end_ticks: int) -> NDArray[np.int64]:
    """Notes that begin before a time."""
    return track.notes[track.notes[:, 0] < end_ticks]


def _alone(new: Score, prompt: Prompt) -> bytes:
    """The new music as a file of its own, in the tempos and metres that the file has there."""
    joint, score = prompt.joint_ticks, prompt.score
    # of those up to the joint the last one stays
    tempos = {max(tick - joint, 0): bpm for tick, bpm in ((0, 120.0), *score.tempos)}
    metres = {max(t - joint, 0): metre for t, *metre in ((0, 4, 4), *score.time_signatures)}
    length = max(new.end_ticks - joint, 1)
    tracks = (
        replace(t, notes=t.notes - [joint, 0, 0, 0], chunk=None) for t in new.tracks if len(t)
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
