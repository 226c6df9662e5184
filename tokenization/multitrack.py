"""REMI tokens of several instruments: at each position, runs of one track's notes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from tokenization.layout import read_bars
from tokenization.midi import MAX_BEATS
from tokenization.multitrack_grammar import MultitrackGrammar, MultitrackRules
from tokenization.quantize import (
    bar_lines,
    name_bars,
    nearest_step,
    quantize_tempos,
    quantize_time_signatures,
    refuse_late_notes,
    separate_notes,
    starts_of_runs,
)
from tokenization.remi import TokenSequence, crop_bars, save_config
from tokenization.score import Score, Tempo, TimeSignature, Track
from tokenization.vocabulary import (
    BAR,
    BAR_UNIT,
    BOS,
    DRUM_PITCH,
    DRUMS,
    DURATIONS,
    EOS,
    MAX_DURATION,
    MIN_BPM,
    MULTITRACK_VOCABULARY,
    NUM_PARTS,
    NUM_TEMPOS,
    PART,
    POSITION,
    PROGRAM,
    PROGRAM_ORDER,
    STEPS_PER_BEAT,
    TEMPO,
    TIME_SIGNATURE,
    TRACK_DURATION,
    TRACK_PITCH,
    TRACK_VELOCITY,
    VELOCITY_STEP,
    Vocabulary,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from tokenization.grammar import TempoRule

_MAX_STEPS = MAX_BEATS * STEPS_PER_BEAT
_RANKS = np.argsort(PROGRAM_ORDER) * NUM_PARTS
"""Of each program, 128 the drums: the place of its first track at a position."""

# A packed event, in bits from above: step, what it is, and its content. Bar lines come before
# tempos, these before notes; notes by track, pitch, duration, velocity.
_CONTENT_BITS, _KIND_BITS = 18, 10
_IS_BAR, _IS_TEMPO, _FIRST_TRACK = 0, 1, 2


@dataclass(frozen=True, kw_only=True)
class MultitrackRemiConfig:
    """Everything needed to build a `MultitrackRemi` again."""

    kind: Literal["multitrack_remi"] = "multitrack_remi"

    def build(self) -> MultitrackRemi:
        """The tokenizer."""
        return MultitrackRemi(self)


class MultitrackRemi:
    """Music of several tracks as tokens on twelfths of a quarter note.

    Bars, positions, tempos and metres are those of `PianoRemi`. At a position stand runs of notes:
    a Program, a Part if it is not the first track of that program, then the track's notes, pitches
    rising. Runs come in the order drums, basses, chords, others. A note of the drums is Drum and
    Velocity, any other Pitch, Velocity, Duration. All drums are one track; of more than four tracks
    of one program the last ones are one.
    """

    def __init__(self, config: MultitrackRemiConfig | None = None) -> None:
        self.config = MultitrackRemiConfig() if config is None else config

    @property
    def vocabulary(self) -> Vocabulary:
        """The 812 tokens."""
        return MULTITRACK_VOCABULARY

    def encode(self, score: Score) -> TokenSequence:
        """Tokens of a score; the sustain pedal is not read.

        Parts are counted in the order of the score's tracks, those without notes included. Raises
        MidiError where a note stands beyond 65,536 quarters.
        """
        ranks = track_ranks(score.tracks)
        tables = [track.notes for track in score.tracks]
        table = np.concatenate([np.empty((0, 4), np.int64), *tables])
        tracks = np.repeat(np.array(ranks, np.int64), list(map(len, tables)))
        refuse_late_notes(table[:, 0], score.ticks_per_beat)
        onsets = nearest_step(table[:, 0], score.ticks_per_beat)
        ends = nearest_step(table[:, 0] + table[:, 1], score.ticks_per_beat)
        lengths = np.where(tracks == 0, 1, np.maximum(ends - onsets, 1))
        notes = separate_notes(
            (tracks << 7) | table[:, 2], onsets, lengths, table[:, 3] // VELOCITY_STEP
        )
        durations = notes.duration_tokens()
        end = int((notes.onsets + DURATIONS[durations]).max(initial=0))
        score_end = nearest_step(score.end_ticks, score.ticks_per_beat)
        # A note without an end is clipped, and must not leave bars of nothing behind.
        if score_end <= _MAX_STEPS:
            end = max(end, score_end)
        signatures = quantize_time_signatures(score)
        lines = bar_lines(signatures, end)
        end = int(lines[-1])
        tempos = quantize_tempos(score)
        num_tempos = int(np.searchsorted(tempos.steps, end))
        events = np.concatenate(
            [
                _bars(lines),
                _pack(tempos.steps[:num_tempos], _IS_TEMPO, tempos.bpm[:num_tempos]),
                _pack(
                    notes.onsets,
                    _FIRST_TRACK + (notes.pitches >> 7),
                    ((notes.pitches & 127) << 11) | (durations << 5) | notes.velocities,
                ),
            ]
        )
        events.sort()
        return TokenSequence(
            ids=_write_ids(events, lines),
            dropped=0,
            clipped=int(np.count_nonzero(notes.durations > MAX_DURATION)),
            merged=len(table) - len(notes.onsets),
            tempos_clipped=tempos.clipped,
            signatures=tuple(change for change in signatures if change.tick < end),
            tracks=_named(score.tracks, ranks),
        )

    def decode(
        self,
        ids: Sequence[int] | NDArray[np.integer],
        signatures: Sequence[TimeSignature] = (),
        tracks: Sequence[Track] = (),
    ) -> Score:
        """Score of any ids, 12 ticks per quarter: never raises, in linear time.

        As `PianoRemi.decode`; notes belong to the last Program before them, without one to program
        0. Tracks come in the order of runs; those before the last part of a program are there even
        without notes. `signatures` and `tracks` are those of the `TokenSequence`: written instead
        of bar lengths; and names, channels, places in the file of the tracks.
        """
        array = np.asarray(ids, dtype=np.int64).reshape(-1)
        ends = np.flatnonzero(array == EOS)
        if len(ends):
            array = array[: ends[0]]
        bars = read_bars(array)

        is_drum = (array >= DRUM_PITCH) & (array < TRACK_VELOCITY)
        is_pitch = (array >= TRACK_PITCH) & (array < DRUM_PITCH)
        is_velocity = (array >= TRACK_VELOCITY) & (array < TRACK_DURATION)
        is_duration = (array >= TRACK_DURATION) & (array < len(MULTITRACK_VOCABULARY))
        of_drums = np.flatnonzero(is_drum[:-1] & is_velocity[1:])
        of_tracks = np.flatnonzero(is_pitch[:-2] & is_velocity[1:-1] & is_duration[2:])
        ranks = _ranks_at(array, of_tracks)
        of_tracks, ranks = of_tracks[ranks > 0], ranks[ranks > 0]
        places = np.concatenate([of_drums, of_tracks])
        notes = separate_notes(
            np.concatenate(
                [array[of_drums] - DRUM_PITCH, (ranks << 7) + array[of_tracks] - TRACK_PITCH]
            ),
            np.concatenate([bars.times_at(of_drums), bars.times_at(of_tracks)]),
            np.concatenate(
                [
                    np.ones(len(of_drums), np.int64),
                    DURATIONS[array[of_tracks + 2] - TRACK_DURATION],
                ]
            ),
            array[places + 1] - TRACK_VELOCITY,
        )
        ranks = notes.pitches >> 7
        order = np.argsort((ranks << 38) | (notes.onsets << 7) | (notes.pitches & 127))
        table = np.empty((len(order), 4), np.int64)
        table[:, 0] = notes.onsets[order]
        table[:, 1] = notes.durations[order]
        table[:, 2] = notes.pitches[order] & 127
        table[:, 3] = notes.velocities[order] * VELOCITY_STEP + VELOCITY_STEP // 2
        places = np.flatnonzero((array >= TEMPO) & (array < TEMPO + NUM_TEMPOS))
        steps = bars.times_at(places).tolist()
        bpm = (array[places] - (TEMPO - MIN_BPM)).astype(float).tolist()
        return Score(
            ticks_per_beat=STEPS_PER_BEAT,
            tracks=tuple(_tracks(table, ranks[order], tracks)),
            tempos=tuple(map(Tempo, steps, bpm)),
            time_signatures=name_bars(bars.lines, signatures),
            end_ticks=int(bars.lines[-1]),
        )

    def grammar(
        self,
        *,
        tempo: TempoRule = "free",
        time_signature: bool = True,
        end: bool = True,
        tracks: Iterable[Track] | None = None,
    ) -> MultitrackGrammar:
        """Which token may come first; `tracks`, where given, are the only ones that may play."""
        ranks = None if tracks is None else frozenset(track_ranks(tuple(tracks)))
        return MultitrackGrammar(MultitrackRules(tempo, time_signature, end, ranks))

    def crop(
        self, ids: NDArray[np.integer], first_bar: int, num_bars: int | None = None
    ) -> NDArray[np.integer]:
        """Canonical ids of some bars, see `PianoRemi.crop`. Parts keep their numbers."""
        return crop_bars(ids, first_bar, num_bars)

    def transpose(self, ids: NDArray[np.integer], semitones: int) -> NDArray[np.integer] | None:
        """The same ids with other pitches, drums as they are; None where one would leave 0-127."""
        places = np.flatnonzero((ids >= TRACK_PITCH) & (ids < DRUM_PITCH))
        pitches = ids[places].astype(np.int64) + semitones
        if len(pitches) and not TRACK_PITCH <= pitches.min() <= pitches.max() < DRUM_PITCH:
            return None
        moved = ids.copy()
        moved[places] = pitches
        return moved

    def replace_program(
        self, ids: NDArray[np.integer], program: int, by: int | None
    ) -> NDArray[np.integer]:
        """Ids in which the tracks of a program (128: drums) play another one, or nothing (None).

        For conditions: without drums, with strings for the piano. Canonical ids of a whole piece in
        and out. Drums become no other program, and none becomes drums.
        """
        score = self.decode(ids)
        tracks: list[Track] = []
        for track in score.tracks:
            is_it = (
                track.is_drum
                if program == DRUMS
                else (track.program, track.is_drum)
                == (
                    program,
                    False,
                )
            )
            if not is_it:
                tracks.append(track)
            elif by is not None:
                tracks.append(replace(track, program=by))
        return self.encode(replace(score, tracks=tuple(tracks))).ids

    def save(self, folder: Path) -> None:
        """Write `tokenizer.json` into a folder: the config and the hash of the vocabulary."""
        save_config(self.config, self.vocabulary, folder)


def track_ranks(tracks: Sequence[Track]) -> list[int]:
    """Place of each track among the runs of a position: its program's, and which part it is."""
    parts: dict[int, int] = {}
    ranks: list[int] = []
    for track in tracks:
        program = DRUMS if track.is_drum else track.program
        part = 0 if track.is_drum else min(parts.get(program, 0), NUM_PARTS - 1)
        parts[program] = part + 1
        ranks.append(int(_RANKS[program]) + part)
    return ranks


def _named(tracks: Sequence[Track], ranks: Sequence[int]) -> tuple[Track, ...]:
    """Tracks without their notes, in the order of runs; of several at one place the fullest."""
    fullest: dict[int, Track] = {}
    for rank, track in zip(ranks, tracks, strict=True):
        if rank not in fullest or len(track) > len(fullest[rank]):
            fullest[rank] = track
    return tuple(
        replace(fullest[rank], notes=[], controls=[], bends=[]) for rank in sorted(fullest)
    )


def _tracks(
    table: NDArray[np.int64], ranks: NDArray[np.int64], known: Sequence[Track]
) -> list[Track]:
    """Tracks of notes that are sorted by rank and time, in that order."""
    names = dict(zip(track_ranks(known), known, strict=True))
    firsts = np.flatnonzero(starts_of_runs(ranks))
    parts = dict(zip(ranks[firsts].tolist(), np.split(table, firsts[1:]), strict=False))
    tracks: list[Track] = []
    for rank in sorted({r for last in parts for r in range(last - last % NUM_PARTS, last + 1)}):
        program = PROGRAM_ORDER[rank // NUM_PARTS]
        track = names.get(rank)
        if track is None:
            is_drum = program == DRUMS
            track = Track(
                np.empty((0, 4), np.int64), program=0 if is_drum else program, is_drum=is_drum
            )
        tracks.append(replace(track, notes=parts.get(rank, track.notes)))
    return tracks


def _ranks_at(ids: NDArray[np.int64], places: NDArray[np.intp]) -> NDArray[np.int64]:
    """Track of the tokens at sorted places: that of the last Program before, and its Part."""
    programs = np.flatnonzero((ids >= PROGRAM) & (ids < PART))
    parts = np.append(ids, 0)[programs + 1] - PART + 1
    parts = np.where((parts > 0) & (parts < NUM_PARTS), parts, 0)
    ranks = (ids[programs] - PROGRAM) * NUM_PARTS + parts
    ranks = np.append(_RANKS[0], np.where(ranks < NUM_PARTS, 0, ranks))
    return ranks[np.searchsorted(programs, places)]


def _pack(
    steps: NDArray[np.int64], kind: NDArray[np.int64] | int, content: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Events as one integer each, which sort as they stand."""
    return (((steps << _KIND_BITS) + kind) << _CONTENT_BITS) + content


def _bars(lines: NDArray[np.int64]) -> NDArray[np.int64]:
    """Packed bar lines; the content is a new TimeSignature, or 0."""
    lengths = lines[1:] - lines[:-1]
    signature = lengths // BAR_UNIT + (TIME_SIGNATURE - 1)
    return _pack(lines[:-1], _IS_BAR, np.where(starts_of_runs(lengths), signature, 0))


def _write_ids(events: NDArray[np.int64], lines: NDArray[np.int64]) -> NDArray[np.int32]:
    """Canonical ids of sorted packed events: rows of up to six, then those that are there."""
    whats = events >> _CONTENT_BITS
    steps, kinds = whats >> _KIND_BITS, whats & ((1 << _KIND_BITS) - 1)
    contents = events & ((1 << _CONTENT_BITS) - 1)
    first_of_step, first_of_kind = starts_of_runs(steps), starts_of_runs(whats)
    bars = np.flatnonzero(kinds == _IS_BAR)
    tempos = np.flatnonzero(kinds == _IS_TEMPO)
    first_of_step[bars[bars < len(events) - 1] + 1] = True
    ranks = kinds - _FIRST_TRACK
    parts = ranks & (NUM_PARTS - 1)
    is_drum = ranks == 0

    rows = np.full((len(events) + 1, 6), -1, np.int32)
    rows[0, 0] = BOS
    notes = rows[1:]
    bar_starts = np.repeat(lines[:-1], np.diff(np.append(bars, len(events))))
    np.copyto(notes[:, 0], steps - bar_starts + POSITION, where=first_of_step, casting="unsafe")
    np.copyto(notes[:, 1], (ranks >> 2) + PROGRAM, where=first_of_kind, casting="unsafe")
    np.copyto(notes[:, 2], parts + (PART - 1), where=first_of_kind & (parts > 0), casting="unsafe")
    notes[:, 3] = (contents >> 11) + np.where(is_drum, DRUM_PITCH, TRACK_PITCH)
    notes[:, 4] = (contents & 31) + TRACK_VELOCITY
    np.copyto(
        notes[:, 5], ((contents >> 5) & 63) + TRACK_DURATION, where=~is_drum, casting="unsafe"
    )
    notes[tempos, 1] = contents[tempos] + TEMPO - MIN_BPM
    notes[tempos, 2:] = -1
    notes[bars, 0] = BAR
    notes[bars, 1] = contents[bars] - (contents[bars] == 0)
    notes[bars, 2:] = -1
    return np.append(rows[rows >= 0], np.int32(EOS))
