"""Token ids of MidiTok's REMI with programs, tempos and time signatures, without using MidiTok.

It allows comparison with models and data that use MidiTok's tokens (Fradet et al., 2021; REMI+ of
von Rütte et al., 2022). It behaves like MidiTok 3.1.0, oddities included.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, starmap
from typing import Literal, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from tokenization.errors import MidiError
from tokenization.remi.decode import hold
from tokenization.remi.quantize import ends_of_runs, starts_of_runs
from tokenization.score import (
    MAX_BEATS,
    Score,
    Tempo,
    TimeSignature,
    Track,
    all_notes,
    nearest_ratio,
)
from tokenization.tokenizer import (
    BaseTokenizer,
    Grammar,
    Rules,
    TokenSequence,
    Vocabulary,
    end_of_crop,
    shift_ids,
)

_TICKS = 24
"""Ticks per quarter note in decoded scores: 12 positions of a quarter or of an eighth note."""
_METRES = (*((n, 4) for n in range(1, 8)), *((n, 8) for n in (3, 5, 6, 7, 9, 12)))
_DURATIONS = (
    *((beat, part, 12) for beat in range(4) for part in range(12) if beat or part),
    *((beat, part, 4) for beat in range(4, 16) for part in range(4)),
    *((beat, 0, 1) for beat in range(16, 65)),
)
"""Beats, fractions of a beat, and number of fractions in a beat."""
_MIN_BPM, _MAX_BPM = 30, 240
_DRUMS = 128
"""Program number of the drums; MidiTok uses -1."""

MIDITOK_VOCABULARY = Vocabulary(
    (
        *("PAD_None", "BOS_None", "EOS_None", "MASK_None", "Bar_None"),
        *(f"Pitch_{pitch}" for pitch in range(21, 110)),
        *(f"Velocity_{velocity}" for velocity in range(3, 128, 4)),
        *(f"Duration_{beat}.{part}.{parts}" for beat, part, parts in _DURATIONS),
        *(f"Position_{position}" for position in range(144)),
        *(f"PitchDrum_{pitch}" for pitch in range(27, 89)),
        *(f"Tempo_{bpm}.0" for bpm in range(_MIN_BPM, _MAX_BPM + 1)),
        *(f"Program_{program}" for program in (*range(128), -1)),
        *(f"TimeSig_{numerator}/{denominator}" for numerator, denominator in _METRES),
    )
)
"""The 829 tokens of `MidiTokRemi`."""

_FIRST = ("Bar_None", "Pitch_21", "Velocity_3", "Duration_0.1.12", "Position_0", "PitchDrum_27")
_BAR, _PITCH, _VELOCITY, _DURATION, _POSITION, _DRUM, _TEMPO, _PROGRAM, _TIME_SIGNATURE = (
    MIDITOK_VOCABULARY.ids[name] for name in (*_FIRST, "Tempo_30.0", "Program_0", "TimeSig_1/4")
)

_4_4 = _METRES.index((4, 4))
_GRID = np.array([8 // denominator for _, denominator in _METRES])
"""Length of a position in 24ths of a quarter note, by time signature."""
_BARS = np.array([12 * numerator for numerator, _ in _METRES]) * _GRID
"""Length of a bar in 24ths of a quarter note, by time signature."""
_LENGTHS = np.array([(beat * parts + part) * 24 // parts for beat, part, parts in _DURATIONS])
"""Length in 24ths of a beat, by Duration."""
_LONGEST = int(_LENGTHS[-1])
_LENGTH_LIMITS = (_LENGTHS[1:] + _LENGTHS[:-1]) / 2
_DURATION_IDS = np.searchsorted(_LENGTH_LIMITS, np.arange(_LONGEST + 1), "right") + _DURATION
"""Id of the nearest Duration, by length in 24ths of a beat; halves are rounded up."""
_PITCH_IDS = np.zeros((2, 128), np.int64)
"""Id by drum flag and MIDI pitch; 0 if there is no token."""
_PITCH_IDS[0, 21:110] = np.arange(_PITCH, _VELOCITY)
_PITCH_IDS[1, 27:89] = np.arange(_DRUM, _TEMPO)
_QUARTERS = 60e6 / np.arange(_MAX_BPM, _MIN_BPM - 1, -1)
_QUARTER_LIMITS = (_QUARTERS[1:] + _QUARTERS[:-1]) / 2
"""Limits between adjacent tempos in microseconds per quarter note, fastest first."""


def _is(ids: NDArray[np.integer], first: int, stop: int) -> NDArray[np.bool_]:
    """Mask of the ids in [first, stop)."""
    return (ids >= first) & (ids < stop)


class MidiTokSequence(TokenSequence):
    """A piece as ids of `MidiTokRemi`.

    `dropped` is the number of notes whose pitch has no token, `clipped` that of notes over 64
    beats. No notes are merged; the ids contain the time signatures, and tracks differ only by
    program.
    """

    @cached_property
    def beats(self) -> NDArray[np.float64]:
        """See `TokenSequence`."""
        return _Written.of(self.ids).times / _TICKS


@dataclass(frozen=True, kw_only=True)
class MidiTokRemiConfig:
    """Configuration of a `MidiTokRemi`."""

    kind: Literal["miditok_remi"] = "miditok_remi"

    def build(self) -> MidiTokRemi:
        """The tokenizer."""
        return MidiTokRemi(self)


class MidiTokRemi(BaseTokenizer[Grammar]):
    """The ids of `miditok.REMI`, version 3.1.0, with this `TokenizerConfig`.

    ::

        pitch_range=(21, 109), use_pitchdrum_tokens=True, drums_pitch_range=(27, 88),
        use_velocities=True, num_velocities=32, remove_duplicated_notes=False,
        beat_res={(0, 4): 12, (4, 16): 4, (16, 64): 1},
        use_note_duration_programs=range(-1, 128), use_pitch_intervals=False,
        special_tokens=["PAD", "BOS", "EOS", "MASK"], encode_ids_split="bar",
        use_programs=True, programs=range(-1, 128), one_token_stream_for_programs=True,
        program_changes=False,
        use_tempos=True, num_tempos=211, tempo_range=(30, 240), log_tempos=False,
        delete_equal_successive_tempo_changes=False,
        use_time_signatures=True, delete_equal_successive_time_sig_changes=False,
        time_signature_range={4: [1, 2, 3, 4, 5, 6, 7], 8: [3, 5, 6, 7, 9, 12]},
        use_chords=False, use_rests=False, use_key_signatures=False, use_sustain_pedals=False,
        sustain_pedal_duration=False, use_pitch_bends=False, use_control_changes=False,
        max_bar_embedding=None, use_bar_end_tokens=False, add_trailing_bars=False
        # every ac_... option False; all other options have no effect with these

    A bar begins with `Bar TimeSig`. A Position marks where a tempo is set or notes begin. It is
    followed by the Tempo and the notes, each as Program, Pitch or PitchDrum, Velocity, Duration.
    There is no BOS or EOS. A beat is a quarter note, or an eighth if the time signature counts
    eighths, and has twelve positions. A time signature that is not in the list, such as 2/2, is
    ignored; a change within a bar applies from the next bar line. Tracks with the same program are
    merged, in the place of the first one.

    The ids differ from MidiTok's only where `read_midi` reads a file differently from symusic,
    which MidiTok uses:

    - Notes of a track at one tick have no order in a `Score`; they are sorted by pitch. In about
      half of all files they are in another order, so that ids differ within a position.
    - Of several time signatures at one tick the last applies, even if it is not in the list.
    - A program applies to its channel in all chunks.
    - A chunk of lyrics does not affect the place of a later track with its program.
    - Music after quarter note 65,536 is a `MidiError`.

    Notes at one position are in the order of their exact times, which ids do not contain, so that
    their order may change after decoding and encoding. Hence no sequence is canonical, and there is
    no grammar.
    """

    vocabulary = MIDITOK_VOCABULARY

    def __init__(self, config: MidiTokRemiConfig | None = None) -> None:
        super().__init__(MidiTokRemiConfig() if config is None else config)

    def encode(self, score: Score) -> MidiTokSequence:
        """Encodes a score; the sustain pedal is ignored.

        Raises MidiError if a note, a tempo or a time signature is later than 65,536 quarters.
        """
        lasts = [int(track.notes[-1, 0]) for track in score.tracks if len(track)]
        lasts += [change.tick for change in (*score.tempos[-1:], *score.time_signatures[-1:])]
        last_beat = max(lasts, default=0) // score.ticks_per_beat
        if last_beat >= MAX_BEATS:
            raise MidiError(
                f"a note, tempo or time signature is at quarter note {last_beat:,}, expected all "
                f"before {MAX_BEATS:,}; remove the silence before it"
            )
        metres = _read_metres(score)
        tempo_times, tempos = _read_tempos(score, metres)
        onsets, notes, dropped, clipped = _read_notes(score, metres)

        # Tempos, then notes by program; a stable sort keeps this order at equal times.
        times = np.append(tempo_times, onsets)
        order = np.argsort(times, kind="stable")
        times, is_note = times[order], order >= len(tempos)

        # Before the ids of an event come those of earlier events, two for each bar so far, and a
        # Position if the time is new.
        sections = metres.at(times)
        bars, ticks = np.divmod(times - metres.starts[sections], metres.bars[sections])
        bars += metres.first_bars[sections]
        num_bars = max(int(bars[-1]), int(metres.first_bars[-1])) + 1
        is_new = starts_of_runs(times)
        sizes = np.where(is_note, 4, 1) + is_new
        sums = np.append(0, np.cumsum(sizes))
        stops = sums[1:] + 2 * (bars + 1)
        ids = np.empty(int(sums[-1]) + 2 * num_bars, np.int32)
        numbers = np.arange(num_bars)
        bar_places = sums[np.searchsorted(bars, numbers)] + 2 * numbers
        ids[bar_places] = _BAR
        bars_of_metres = np.diff(metres.first_bars, append=num_bars)
        ids[bar_places + 1] = _TIME_SIGNATURE + np.repeat(metres.metres, bars_of_metres)
        ids[(stops - sizes)[is_new]] = _POSITION + (ticks // metres.grid[sections])[is_new]
        ids[stops[~is_note] - 1] = tempos
        note_places = stops[is_note, np.newaxis] - np.arange(4, 0, -1)
        ids[note_places] = notes[order[is_note] - len(tempos)]
        return MidiTokSequence(
            ids=ids,
            dropped=dropped,
            clipped=clipped,
            tempos_clipped=sum(not _MIN_BPM <= bpm <= _MAX_BPM for _, bpm in score.tempos),
        )

    def decode(
        self,
        ids: Sequence[int] | NDArray[np.integer],
        signatures: Sequence[TimeSignature] = (),
        tracks: Sequence[Track] = (),
    ) -> Score:
        """Decodes any ids to a score with 24 ticks per quarter, as MidiTok does; never raises.

        Takes linear time. A note is a Pitch or PitchDrum, a Velocity and a Duration in a row; its
        program is that of the last Program before it, or 0 if there is none. Misplaced tokens are
        ignored. Tracks are in the order of their first notes; of several tempos or time signatures
        at one time the last applies.
        """
        array = np.asarray(ids, dtype=np.int64).reshape(-1)
        written = _Written.of(array)
        is_pitch = _is(array, _PITCH, _VELOCITY) | _is(array, _DRUM, _TEMPO)
        has_rest = _is(array[1:-1], _VELOCITY, _DURATION) & _is(array[2:], _DURATION, _POSITION)
        places = np.flatnonzero(is_pitch[:-2] & has_rest)
        pitches = array[places]
        lengths = _LENGTHS[array[places + 2] - _DURATION]
        columns = (
            written.times[places],
            lengths * _GRID[written.metres_at(places)] // 2,
            np.where(pitches < _VELOCITY, pitches - (_PITCH - 21), pitches - (_DRUM - 27)),
            4 * (array[places + 1] - _VELOCITY) + 3,
        )
        table = np.stack(columns, axis=1)
        changes = np.flatnonzero(_is(array, _PROGRAM, _TIME_SIGNATURE))
        programs = np.append(0, array[changes] - _PROGRAM)[np.searchsorted(changes, places)]
        found, firsts = np.unique(programs, return_index=True)
        places = np.flatnonzero(_is(array, _TEMPO, _PROGRAM))
        bpm = (array[places] - (_TEMPO - _MIN_BPM)).astype(float)
        tempos = dict(zip(written.times[places].tolist(), bpm.tolist(), strict=True))
        return Score(
            ticks_per_beat=_TICKS,
            tracks=tuple(
                Track(table[programs == program], program % _DRUMS, is_drum=program == _DRUMS)
                for program in found[np.argsort(firsts)].tolist()
            ),
            tempos=tuple(starmap(Tempo, tempos.items())),
            time_signatures=written.time_signatures(),
        )

    def track_ranks(self, tracks: Sequence[Track]) -> list[int]:
        """Program of each track (128 for drums), since only the program distinguishes tracks."""
        return [_DRUMS if track.is_drum else track.program for track in tracks]

    def _grammar(self, rules: Rules) -> NoReturn:
        raise NotImplementedError(
            "MidiTok's sequences are not canonical, so there is no grammar for them; use the "
            "tokenizer multitrack_remi, or sample without rules"
        )

    def crop(
        self, ids: NDArray[np.integer], first_bar: int, num_bars: int | None = None
    ) -> NDArray[np.integer]:
        """Ids of `num_bars` bars (default: all) from `first_bar` on, of the same dtype.

        Takes ids returned by `encode`. The result starts with `Bar TimeSig Position_0 Tempo`, the
        settings in effect; ids before the first bar are kept with it. Raises ValueError if there is
        no such bar.
        """
        starts = np.append(np.flatnonzero(ids == _BAR), len(ids))
        stop = starts[end_of_crop(first_bar, num_bars, len(starts) - 1)]
        start = starts[first_bar] if first_bar else 0
        piece = ids[start:stop]
        tempos = np.flatnonzero(_is(ids[:start], _TEMPO, _PROGRAM))
        at_once = len(piece) > 3 and piece[2] == _POSITION
        if not len(tempos) or (at_once and _TEMPO <= piece[3] < _PROGRAM):
            return piece
        in_force = np.array([_POSITION, ids[tempos[-1]]], ids.dtype)
        return np.concatenate([piece[:2], in_force, piece[3 if at_once else 2 :]])

    def transpose(self, ids: NDArray[np.integer], semitones: int) -> NDArray[np.integer] | None:
        """Transposed ids, drums unchanged; None if a pitch would leave 21-109."""
        return shift_ids(ids, semitones, _PITCH, _VELOCITY)


class _Metres(NamedTuple):
    """Time signatures of a score, each from a bar line on, columns (n,); times in ticks."""

    ticks_per_beat: int
    """12, or 24 if the score has time signatures in eighths, so that an eighth has 12."""
    starts: NDArray[np.int64]
    first_bars: NDArray[np.int64]
    metres: NDArray[np.int64]
    bars: NDArray[np.int64]
    """Ticks per bar."""
    grid: NDArray[np.int64]
    """Ticks per position."""

    def at(self, times: NDArray[np.int64]) -> NDArray[np.int64]:
        """Row in effect at each time."""
        return np.searchsorted(self.starts, times, side="right") - 1

    def ticks(self, times: NDArray[np.int64], score: Score) -> NDArray[np.int64]:
        """Converts times of the score to ticks; halves are rounded up."""
        return nearest_ratio(self.ticks_per_beat * times, score.ticks_per_beat)

    def on_grid(self, times: NDArray[np.int64]) -> NDArray[np.int64]:
        """Moves times to the nearest position; halves go to the even one.

        This applies only if both quarters and eighths occur. With quarters only, MidiTok leaves
        times between positions unchanged, even if time signatures in eighths that never took effect
        have made ticks finer.
        """
        if len(set(self.grid.tolist())) == 1:
            return times
        rows = self.at(times)
        starts, grid = self.starts[rows], self.grid[rows]
        return starts + grid * np.rint((times - starts) / grid).astype(np.int64)


def _read_metres(score: Score) -> _Metres:
    """Time signatures that have a token; the last one in a bar applies from the next bar line."""
    changes: list[tuple[int, int]] = []
    for tick, *metre in score.time_signatures:
        if tuple(metre) in _METRES:
            changes.append((tick, _METRES.index(tuple(metre))))
    ticks_per_beat = 24 // min([2, *(int(_GRID[metre]) for _, metre in changes)])
    scale = 24 // ticks_per_beat
    kept = [(0, 0, _4_4)]
    for tick, metre in changes:
        last, last_bar, last_metre = kept[-1]
        if metre == last_metre:
            continue
        length = int(_BARS[last_metre]) // scale
        # Times of time signatures are truncated to whole ticks; all other times are rounded.
        waits = int(tick * (ticks_per_beat / score.ticks_per_beat)) - last
        num_bars = max(0, -(-waits // length))
        if not num_bars:
            kept.pop()
            if kept and kept[-1][2] == metre:
                continue
        kept.append((last + num_bars * length, last_bar + num_bars, metre))
    starts, first_bars, metres = np.array(kept).T
    return _Metres(
        ticks_per_beat, starts, first_bars, metres, _BARS[metres] // scale, _GRID[metres] // scale
    )


def _read_tempos(score: Score, metres: _Metres) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Times and ids of the tempos; of several at one time the last applies."""
    ticks, bpm = zip((0, 120.0), *score.tempos, strict=True)
    times = metres.on_grid(metres.ticks(np.array(ticks), score))
    quarters = np.rint(60e6 / np.clip(bpm, 1, 60e6))
    ids = _PROGRAM - 1 - np.searchsorted(_QUARTER_LIMITS, quarters, side="right")
    last = ends_of_runs(times)
    return times[last], ids[last]


def _read_notes(
    score: Score, metres: _Metres
) -> tuple[NDArray[np.int64], NDArray[np.int64], int, int]:
    """Onsets (n,), ids (n, 4), number of notes without a pitch token, and number of clipped notes.

    Notes are grouped by program, and sorted by exact time and pitch; if tracks are merged, by time
    in ticks and duration, since MidiTok sorts only then.
    """
    tracks: dict[int, list[Track]] = {}
    for track in score.tracks:
        if len(track):
            program = _DRUMS if track.is_drum else track.program
            tracks.setdefault(program, []).append(track)
    columns = all_notes(chain(*tracks.values())).T.copy()
    columns[:2] = metres.ticks(columns[:2], score)
    if score.ticks_per_beat != metres.ticks_per_beat:
        columns[1] = np.maximum(columns[1], 1)
    sizes = [sum(map(len, members)) for members in tracks.values()]
    ends = np.cumsum(sizes).tolist()
    for members, size, end in zip(tracks.values(), sizes, ends, strict=True):
        if len(members) > 1:
            merged = columns[:, end - size : end]
            merged[:] = merged[:, np.lexsort(merged[::-1])]
    programs = np.repeat(np.array(list(tracks), np.int64), sizes)
    pitch_ids = _PITCH_IDS[programs // _DRUMS, columns[2]]
    heard = pitch_ids > 0
    dropped = len(heard) - int(np.count_nonzero(heard))
    if dropped:
        columns, programs, pitch_ids = columns[:, heard], programs[heard], pitch_ids[heard]
    onsets = metres.on_grid(columns[0])
    lengths = columns[1] * 2 // metres.grid[metres.at(onsets)]
    ids = np.empty((len(programs), 4), np.int64)
    ids[:, 0] = _PROGRAM + programs
    ids[:, 1] = pitch_ids
    ids[:, 2] = _VELOCITY + (columns[3] - 1) // 4
    ids[:, 3] = _DURATION_IDS[np.minimum(lengths, _LONGEST)]
    return onsets, ids, dropped, int(np.count_nonzero(lengths > _LONGEST))


class _Written(NamedTuple):
    """Time signatures and times of any ids."""

    signatures: NDArray[np.intp]
    """Indices (n,) of the TimeSig tokens."""
    metres: NDArray[np.int64]
    """Time signature before any of them, and after each (n + 1,)."""
    times: NDArray[np.int64]
    """Tick reached by the tokens before each one (l,)."""

    @classmethod
    def of(cls, ids: NDArray[np.integer]) -> _Written:
        """The length of a bar is given by the last TimeSig before the next Bar.

        The first TimeSig applies from the start, unless a note comes before it. The first Bar
        begins at the start, unless a Position comes before it: then there is a bar without a Bar
        token.
        """
        ids = ids.astype(np.int64)
        is_bar = ids == _BAR
        is_position = _is(ids, _POSITION, _DRUM)
        signatures = np.flatnonzero(_is(ids, _TIME_SIGNATURE, len(MIDITOK_VOCABULARY)))
        metres = ids[signatures] - _TIME_SIGNATURE
        is_note = _is(ids, _PITCH, _POSITION) | _is(ids, _DRUM, _TEMPO)
        holds = len(signatures) > 0 and not is_note[: signatures[0]].any()
        metres = np.append(metres[0] if holds else _4_4, metres)

        bars = np.flatnonzero(is_bar)
        lengths = _BARS[metres[np.searchsorted(signatures, bars)]]
        if len(bars) and not is_position[: bars[0]].any():
            lengths[0] = 0
        starts = np.append(0, np.cumsum(lengths))
        marks = np.flatnonzero(is_bar | is_position)
        opens = is_bar[marks]
        grid = _GRID[metres[np.searchsorted(signatures, marks)]]
        within = np.where(opens, 0, (ids[marks] - _POSITION) * grid)
        times = np.append(0, starts[np.cumsum(opens)] + within)
        return cls(signatures, metres, hold(times, marks, len(ids)))

    def metres_at(self, indices: NDArray[np.intp]) -> NDArray[np.int64]:
        """Time signature in effect before each of the indices."""
        return self.metres[np.searchsorted(self.signatures, indices)]

    def time_signatures(self) -> tuple[TimeSignature, ...]:
        """Time signature at the start and every change; of several at one time the last applies."""
        ticks = [0, *self.times[self.signatures].tolist()]
        is_new = starts_of_runs(self.metres).tolist()
        metres = self.metres.tolist()
        last = {tick: metre for tick, metre, new in zip(ticks, metres, is_new, strict=True) if new}
        return tuple(TimeSignature(tick, *_METRES[metre]) for tick, metre in last.items())
