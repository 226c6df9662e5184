"""One piece while it is written, and several that one model writes side by side."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from app.compose.new_bars import BarRule, NewBars, in_bars
from app.compose.steering import MusicRule, Steered, steered
from app.compose.tracks import instrument_name, share_among_tracks
from relpe.decoding.batch import ContinuousBatch, Row
from relpe.decoding.sampling import SamplingOptions
from relpe.decoding.steps import prefill_steps
from tokenization.midi import append_to_midi, read_midi, write_midi
from tokenization.remi.vocabulary import BAR, BOS
from tokenization.score import Score, Tempo, TimeSignature

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from app.compose.models import MusicModel
    from app.compose.options import MusicOptions
    from app.compose.prompt import Prompt
    from relpe.models.decoder import DecoderState
    from tokenization.score import Track


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
    bars: int = 0
    """Of the new music, as they are written."""
    seconds: float = 0.0
    """How long the new music lasts."""


@dataclass(frozen=True, eq=False)
class Opening:
    """Where new music begins: what is heard before it, and the rule for what comes."""

    model: MusicModel
    options: MusicOptions
    heard: NDArray[np.integer]
    """Tokens that the model reads first."""
    written: tuple[int, ...]
    """The last ones of them, or what stands for them, where the new music begins."""
    rule: MusicRule
    prompt: Prompt | None = None
    bars: NewBars | None = None

    @classmethod
    def after(cls, model: MusicModel, prompt: Prompt, options: MusicOptions) -> Opening:
        """Behind a prompt. Raises MidiError where the piece would be longer than a file may be."""
        tokenizer, tracks = model.tokenizer, prompt.parts.of_score(prompt.score)
        silent = [at for at, track in enumerate(tracks) if not prompt.parts.may_play(track)]
        options = in_bars(options, prompt)
        bars = NewBars.after(prompt, options.bars)
        heard = tokenizer.crop(prompt.ids, prompt.first_heard(options.prompt_bars))
        heard = np.append(heard, bars.opening(heard))
        grammar = tokenizer.grammar(tempo="never", end=False, tracks=tracks, silent=silent)
        grammar = grammar.resume(heard)
        grammar = grammar.hold(bars.still_sounding(tokenizer, grammar.bar_start))
        grammar = grammar.remember(heard, presence=options.presence, recall=options.recall)
        last_bar = grammar.bar + len(bars.vocabulary) - 1
        rule = BarRule(grammar, grammar.bar, last_bar, bars.vocabulary)
        rule = steered(rule, options, tokenizer, heard)
        written = (BAR, bars.vocabulary[0].time_signature)
        return cls(model, options, heard, written, rule, prompt, bars)

    @classmethod
    def of_nothing(cls, model: MusicModel, options: MusicOptions) -> Opening:
        """Of a piece of its own."""
        grammar = model.tokenizer.grammar(tempo="bar_line", end=False).advance(BOS)
        rule = steered(BarRule(grammar, 1, options.bars), options, model.tokenizer)
        return cls(model, options, np.array([BOS]), (BOS,), rule)

    @property
    def notes(self) -> int:
        """Notes of the prompt that are heard."""
        return self.model.tokenizer.decode(self.heard).num_notes if self.prompt else 0

    def unread(self) -> DecoderState:
        """The model's state before it has read anything."""
        return self.model.decoder.init_state(1)

    def read(self, state: DecoderState) -> Iterator[DecoderState]:
        """States while the model reads, the last one after all tokens but one."""
        tokens = torch.from_numpy(np.asarray(self.heard[:-1], np.int64))[None]
        for _, newest in prefill_steps(self.model.decoder, state, tokens.to(self.model.device)):
            yield newest


class Draft:
    """One piece while it is written."""

    def __init__(self, opening: Opening, seed: int) -> None:
        self.opening, self.seed = opening, seed
        self.ids = list(opening.written)
        self.rule = opening.rule

    @property
    def tokens(self) -> int:
        """New ones."""
        return len(self.ids) - len(self.opening.written)

    @property
    def bars_done(self) -> int:
        """Finished bars, as they are written."""
        return self.rule.written_bar + self.rule.finished

    @property
    def part_done(self) -> float:
        """Of all bars, or of the seconds that were asked for, 0 to 1."""
        options, rule = self.opening.options, self.rule
        if rule.finished:
            return 1.0
        if options.seconds is None:
            return min(self.bars_done / options.bars, 1.0)
        assert isinstance(rule, Steered)  # what counts the seconds
        return min(rule.seconds_before / options.seconds, 1.0)

    def add(self, token: int, rule: MusicRule) -> None:
        """One more token, and the rule after it."""
        self.rule = rule
        if not rule.finished:
            self.ids.append(token)

    def score(self, *, ended: bool = False) -> Score:
        """The new notes, times from the start of the output.

        Where the piece has `ended`, they are cut at the end of the bar that it came to, unless it
        ends with a cadence.
        """
        opening, rule = self.opening, self.rule
        tokenizer, prompt = opening.model.tokenizer, opening.prompt
        if prompt is None or opening.bars is None:
            score = tokenizer.decode(self.ids)
            new = score.with_tracks(replace(t, name=instrument_name(t)) for t in score.tracks)
            end = rule.grammar.bar_start + rule.grammar.bar_length
        else:
            score = tokenizer.decode(self.ids, tracks=prompt.sequence.tracks)
            tracks = (replace(t, notes=opening.bars.notes(t.notes)) for t in score.tracks)
            new = Score(prompt.score.ticks_per_beat, tuple(tracks))
            new = share_among_tracks(new, prompt.score, tokenizer, prompt.joint_ticks, prompt.parts)
            end = opening.bars.line(rule.written_bar + 1)
        if not ended:
            return replace(new, end_ticks=0)
        if opening.options.ending == "cadence":
            return replace(new, end_ticks=end)
        return replace(new, tracks=tuple(_until(end, track) for track in new.tracks), end_ticks=end)

    def piece(self, tokens_per_second: float = 0.0) -> Piece:
        """What it has become."""
        new, prompt = self.score(ended=True), self.opening.prompt
        if prompt is None:
            midi = alone = write_midi(new)
            timed, start = new, 0
        else:
            midi = append_to_midi(prompt.data, new, prompt.joint_ticks)
            alone = _alone(new, prompt)
            timed, start = prompt.score, prompt.joint_ticks
        begin, end = timed.seconds_at(np.array([start, new.end_ticks])).tolist()
        return Piece(
            midi=midi,
            new_midi=alone,
            score=read_midi(midi) if new.num_notes or prompt else new,
            new=new,
            seed=self.seed,
            tokens=self.tokens,
            notes=new.num_notes,
            tokens_per_second=tokens_per_second,
            bars=self.bars_done,
            seconds=end - begin,
        )


class Drafts:
    """Pieces that one model writes at once; any may begin while others are under way.

    What one becomes hangs on its opening and seed, not on the others.
    """

    def __init__(self, model: MusicModel) -> None:
        self._batch: ContinuousBatch[MusicRule] = ContinuousBatch(model.steps.make())
        self._of_row: dict[Row[MusicRule], Draft] = {}

    def __len__(self) -> int:
        """How many are under way."""
        return len(self._batch.rows)

    def enter(self, opening: Opening, state: DecoderState, seeds: Sequence[int]) -> list[Draft]:
        """One for each seed, all behind `opening`; `state` is the model's after it."""
        drafts = [Draft(opening, seed) for seed in seeds]
        sampling, heard = _sampling(opening.options), opening.heard
        rows = self._batch.enter(
            state, len(heard) - 1, int(heard[-1]), opening.rule, sampling, seeds
        )
        self._of_row.update(zip(rows, drafts, strict=True))
        return drafts

    def step(self) -> list[Draft]:
        """One more token for each; those that have ended with it."""
        for row, token in self._batch.step():
            self._of_row[row].add(token, row.rule)
        going = set(self._batch.rows)
        over = [row for row in self._of_row if row not in going]
        return [self._of_row.pop(row) for row in over]

    def leave(self, draft: Draft) -> None:
        """Ends one before its time."""
        for row in [row for row, own in self._of_row.items() if own is draft]:
            del self._of_row[row]
            if row in self._batch.rows:
                self._batch.leave(row)


def _sampling(options: MusicOptions) -> SamplingOptions:
    """How tokens are drawn: the options of that name."""
    return SamplingOptions(
        **{field.name: getattr(options, field.name) for field in fields(SamplingOptions)}
    )


def _until(end: int, track: Track) -> Track:
    """A track without what comes after a time."""
    notes = track.notes[track.notes[:, 0] < end]
    lengths = np.minimum(notes[:, 1], end - notes[:, 0])
    return replace(track, notes=np.column_stack([notes[:, 0], lengths, notes[:, 2:]]))


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
