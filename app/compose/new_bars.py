"""The bars in which new music is written, and the rule that holds the model to them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from app.compose.options import limits
from app.compose.timing import notes_on_file
from tokenization.errors import MidiError
from tokenization.remi.bars import BarMap, written_lines
from tokenization.remi.quantize import nearest_step, quantize_tempos
from tokenization.remi.vocabulary import (
    BAR,
    BAR_UNIT,
    MIN_BPM,
    NUM_TEMPOS,
    POSITION,
    TEMPO,
    TIME_SIGNATURE,
)
from tokenization.score import MAX_BEATS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from app.compose.options import MusicOptions
    from app.compose.prompt import Prompt
    from tokenization.tokenizer import Grammar, Tokenizer


class VocabularyBar(NamedTuple):
    """A bar between two Bar tokens."""

    length: int
    """Steps, as its TimeSignature says."""
    room: int
    """Steps of it in which notes may begin: fewer where the written bar ends between two eighths.
    """
    written: int
    """Number of the written bar that it is, or is a part of, from 0."""

    @property
    def time_signature(self) -> int:
        """Id of its TimeSignature."""
        return TIME_SIGNATURE + self.length // BAR_UNIT - 1


@dataclass(frozen=True)
class NewBars:
    """The written bars after a joint, and the vocabulary's bars that the model writes for them."""

    map: BarMap
    """Counted ticks, see `Timing`; steps from the joint."""
    prompt: Prompt
    vocabulary: tuple[VocabularyBar, ...]

    @classmethod
    def after(cls, prompt: Prompt, num_bars: int) -> NewBars:
        """As many bars as asked for, in the metres that the file writes at the joint and later.

        Raises MidiError where the piece would be longer than a file may be.
        """
        score, joint = prompt.timing.counted, prompt.joint
        lines = written_lines(score, joint, num_bars)[-num_bars - 1 :]
        end = int(lines[-1]) // score.ticks_per_beat
        if end > MAX_BEATS:
            raise MidiError(
                f"{prompt.name}: {num_bars} new bars would end at quarter note {end:,}, expected "
                f"at most {MAX_BEATS:,}; ask for fewer bars or go on after an earlier one"
            )
        bars = BarMap.of(lines, score.ticks_per_beat)
        starts = bars.vocabulary_lines()
        lengths = np.diff(starts)
        written = np.searchsorted(bars.starts, starts[:-1], side="right") - 1
        rooms = np.minimum(lengths, bars.starts[written] + bars.sizes[written] - starts[:-1])
        columns = (lengths.tolist(), rooms.tolist(), written.tolist())
        return cls(bars, prompt, tuple(map(VocabularyBar, *columns)))

    @property
    def end_ticks(self) -> int:
        """Where the last one ends, in ticks of the file."""
        return self.line(len(self.map.lines) - 1)

    def line(self, bar: int) -> int:
        """Where a written bar begins, from 0, in ticks of the file."""
        return int(self.prompt.timing.to_file(self.map.lines[bar : bar + 1])[0])

    def notes(self, table: NDArray[np.int64]) -> NDArray[np.int64]:
        """Notes in steps from the joint (n, 4) as notes in ticks of the file."""
        return notes_on_file(table, self.map, self.prompt.timing)

    def opening(self, context: NDArray[np.integer]) -> list[int]:
        """Ids that open the first bar, with the metre and tempo that it is counted in.

        `context` is what the model hears before it.
        """
        opening = [BAR]
        metre = self.vocabulary[0].time_signature
        if context[(context >= TIME_SIGNATURE) & (context < POSITION)][-1] != metre:
            opening.append(metre)
        timing = self.prompt.timing
        tempos = quantize_tempos(replace(timing.counted, tempos=timing.heard_tempos))
        joint = nearest_step(self.prompt.joint, timing.counted.ticks_per_beat)
        bpm = int(tempos.bpm[np.searchsorted(tempos.steps, joint, side="right") - 1])
        last = context[(context >= TEMPO) & (context < TEMPO + NUM_TEMPOS)][-1]
        if last != bpm + TEMPO - MIN_BPM:
            opening += [POSITION, bpm + TEMPO - MIN_BPM]
        return opening

    def still_sounding(self, tokenizer: Tokenizer, start: int) -> list[tuple[int, int, int]]:
        """Tracks and pitches of the prompt that sound beyond the joint, and the steps of their end.

        `start` is where the joint lies for the grammar, which counts from the first bar that is
        heard. The ends are those of the file: tokens round them, and MIDI would end a note that is
        struck again before with the end of the first.
        """
        joint = self.prompt.joint
        playing = self.prompt.parts.of_score(self.prompt.timing.counted)
        sounding: list[tuple[int, int, int]] = []
        for track, rank in zip(playing, tokenizer.track_ranks(playing), strict=True):
            if track.is_drum:
                continue
            begins, ends = track.notes[:, 0], track.notes[:, 0] + track.notes[:, 1]
            over = (begins < joint) & (ends > joint)
            late = self.map.steps(ends[over])
            late += self.map.ticks(late) < ends[over]
            pitches, until = track.notes[over, 2].tolist(), (late + start).tolist()
            sounding += [(rank, pitch, end) for pitch, end in zip(pitches, until, strict=True)]
        return sounding


def in_bars(options: MusicOptions, prompt: Prompt) -> MusicOptions:
    """The same length in bars where the options have seconds, in the file's tempos and metres.

    The last bar is the one in which the seconds are over.
    """
    if options.seconds is None:
        return options
    timing, most = prompt.timing, int(limits("bars").most[1] or 0)
    lines = written_lines(timing.counted, prompt.joint, most)[-most - 1 :]
    ends = timing.file.seconds_at(timing.to_file(lines))
    bars = int(np.searchsorted(ends, ends[0] + options.seconds - 1e-3))  # lines lie on ticks
    return replace(options, bars=min(max(bars, 1), most), seconds=None)


class _Rule(NamedTuple):
    """What a `BarRule` is made of."""

    grammar: Grammar
    first_bar: int
    """Number of the first new bar, as the grammar counts."""
    last_bar: int
    planned: tuple[VocabularyBar, ...] = ()
    """What the new bars are; empty where the model chooses their lengths."""
    finished: bool = False


class BarRule(_Rule):
    """A grammar that stops a row at the Bar that would open one bar too many; immutable."""

    @property
    def written_bar(self) -> int:
        """Number of the bar that is being written, or was the last, from 0."""
        bar = max(self.grammar.bar - self.first_bar, 0)
        return self.planned[bar].written if self.planned else bar

    @property
    def bias(self) -> NDArray[np.float64] | None:
        """What is added to the logits (v,), or None: see `RemiGrammar.remember`."""
        return self.grammar.bias

    @property
    def allowed(self) -> NDArray[np.bool_]:
        """Mask of the tokens that may come next; all False where the row has ended."""
        allowed = self.grammar.allowed
        if self.finished:
            return np.zeros_like(allowed)
        return self._mask if self.planned and allowed[BAR] else allowed

    @cached_property
    def _mask(self) -> NDArray[np.bool_]:
        """In a planned bar, where a Bar or another time may follow; kept, since it is asked for."""
        bar = self.planned[self.grammar.bar - self.first_bar]
        mask = self.grammar.allowed.copy()
        mask[TIME_SIGNATURE:POSITION] = False
        mask[POSITION + bar.room : TEMPO] = False
        if bar.length != self.grammar.bar_length:  # only right behind its Bar
            mask[:] = False
            mask[bar.time_signature] = True
        return mask

    def advance(self, token: int) -> BarRule:
        """The rule after `token`."""
        if token == BAR and self.grammar.bar == self.last_bar:
            return self._replace(finished=True)
        return self._replace(grammar=self.grammar.advance(token))
