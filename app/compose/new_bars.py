"""The notated bars in which new music is generated."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from app.compose.options import MusicOptions, limits
from app.compose.prompt.prompt import Prompt
from app.compose.prompt.timing import notes_on_file
from tokenization.constraints.bar_limit import PlannedBar
from tokenization.errors import MidiError
from tokenization.grid import nearest_step, notated_lines
from tokenization.remi.bars import BarMap
from tokenization.remi.quantize import quantize_tempos
from tokenization.remi.remi import Remi
from tokenization.remi.vocabulary import (
    BAR,
    POSITION,
    TEMPO,
    TEMPO_GRID,
    TIME_SIGNATURE,
)
from tokenization.score import MAX_BEATS


@dataclass(frozen=True)
class NewBars:
    """The notated bars after the splice, and the `Bar` tokens that represent them."""

    map: BarMap
    """Converts between ticks of `Timing.counted` and grid steps from the splice."""
    prompt: Prompt
    planned: tuple[PlannedBar, ...]

    @classmethod
    def after(cls, prompt: Prompt, num_bars: int) -> NewBars:
        """Plan `num_bars` bars after the splice, in the metres that the file has there.

        Raises MidiError if the piece would be too long for a file.
        """
        score, splice = prompt.timing.counted, prompt.splice
        lines = notated_lines(score, splice, num_bars)[-num_bars - 1 :]
        end = int(lines[-1]) // score.ticks_per_beat
        if end > MAX_BEATS:
            raise MidiError(
                f"{prompt.name}: {num_bars} new bars would end at quarter note {end:,}, expected "
                f"at most {MAX_BEATS:,}; choose fewer bars or end the prompt earlier"
            )
        bars = BarMap.of(lines, score.ticks_per_beat)
        starts = bars.vocabulary_lines()
        lengths = np.diff(starts)
        notated = np.searchsorted(bars.starts, starts[:-1], side="right") - 1
        rooms = np.minimum(lengths, bars.starts[notated] + bars.sizes[notated] - starts[:-1])
        columns = (lengths.tolist(), rooms.tolist(), notated.tolist())
        return cls(bars, prompt, tuple(map(PlannedBar, *columns)))

    @property
    def end_ticks(self) -> int:
        """End of the last bar, in ticks of the file."""
        return self.line(len(self.map.lines) - 1)

    def line(self, bar: int) -> int:
        """Return the start of a notated bar, counted from 0, in ticks of the file."""
        return int(self.prompt.timing.to_file(self.map.lines[bar : bar + 1])[0])

    def notes(self, table: NDArray[np.int64]) -> NDArray[np.int64]:
        """Convert notes (n, 4) from grid steps after the splice to ticks of the file."""
        return notes_on_file(table, self.map, self.prompt.timing)

    def opening(self, context: NDArray[np.integer]) -> list[int]:
        """Return the ids that open the first new bar, with metre and tempo if not as before.

        `context` are the ids of the prompt.
        """
        opening = [BAR]
        metre = self.planned[0].time_signature
        if context[(context >= TIME_SIGNATURE) & (context < POSITION)][-1] != metre:
            opening.append(metre)
        timing = self.prompt.timing
        tempos = quantize_tempos(replace(timing.counted, tempos=timing.heard_tempos))
        splice = nearest_step(self.prompt.splice, timing.counted.ticks_per_beat)
        tempo = TEMPO + int(tempos.tempos[np.searchsorted(tempos.steps, splice, side="right") - 1])
        last = context[(context >= TEMPO) & (context < TEMPO + len(TEMPO_GRID))][-1]
        if last != tempo:
            opening.append(tempo)
        return opening

    def still_sounding(self, tokenizer: Remi, start: int) -> list[tuple[int, int, int]]:
        """Return the notes of the prompt that sound beyond the splice.

        A note is the rank of its track, its pitch, and its end in steps.
        `start` is the splice in steps from the first bar of the context. Ends are read from the
        file, since tokens round them. A new note must not start while the same key still sounds in
        the file, because the end of the earlier note would also end the new one.
        """
        splice = self.prompt.splice
        playing = self.prompt.parts.of_score(self.prompt.timing.counted)
        sounding: list[tuple[int, int, int]] = []
        for track, rank in zip(playing, tokenizer.track_ranks(playing), strict=True):
            if track.is_drum:
                continue
            begins, ends = track.notes[:, 0], track.notes[:, 0] + track.notes[:, 1]
            over = (begins < self.prompt.starts_at) & (ends > splice)
            late = self.map.steps(ends[over])
            late += self.map.ticks(late) < ends[over]
            pitches, until = track.notes[over, 2].tolist(), (late + start).tolist()
            sounding += [(rank, pitch, end) for pitch, end in zip(pitches, until, strict=True)]
        return sounding


def in_bars(options: MusicOptions, prompt: Prompt) -> MusicOptions:
    """Convert a length in seconds to bars, by the file's tempos and metres.

    The last bar is the one in which this time is reached.
    """
    if options.seconds is None:
        return options
    timing, most = prompt.timing, int(limits("bars").most[1] or 0)
    lines = notated_lines(timing.counted, prompt.splice, most)[-most - 1 :]
    ends = timing.file.seconds_at(timing.to_file(lines))
    bars = int(
        np.searchsorted(ends, ends[0] + options.seconds - 1e-3)
    )  # bar lines are rounded to ticks
    return replace(options, bars=min(max(bars, 1), most), seconds=None)
