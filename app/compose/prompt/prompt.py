"""Reads a MIDI file as a prompt: the part that the model reads, and where new music stands."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from app.compose.fill.gap import Gap
from app.compose.fill.passage import Passage
from app.compose.options import BeatSource, MusicOptions, limits
from app.compose.prompt.report import PromptFacts, Region, heard_tracks, prompt_facts
from app.compose.prompt.timing import FINE_TICKS, BeatChoice, Timing, find_beats
from app.compose.tracks import ALL_PARTS, Parts
from app.text import plural
from tokenization.analysis.beats import extend_by_pedal
from tokenization.analysis.form import Phrase
from tokenization.analysis.plan import analyse
from tokenization.errors import MidiError
from tokenization.grid import STEPS_PER_BEAT, notated_lines
from tokenization.midi import cut_midi, read_midi
from tokenization.midi.drums import drum_places
from tokenization.remi.bars import BarMap
from tokenization.remi.remi import PianoRemi, Remi
from tokenization.remi.vocabulary import BAR
from tokenization.score import MAX_BEATS, Score, Track
from tokenization.tokenizer import TokenSequence

OVERHANG_STEPS = STEPS_PER_BEAT
"""How long the last notes may sound into the first new bar: a quarter note."""
WAITING_BARS = 2
"""Maximum number of bars that new music waits for longer notes to end. Notes that are longer still,
for instance held by the pedal, overlap the new music."""
HEARD_TOKENS = 16_384
"""If no number of bars is given, the model reads at most this many tokens, from a bar line on.
Without this limit, a malicious file of a few bytes could contain a hundred thousand bars."""
MOST_BARS = int(limits("bars").most[1] or 0)
"""Maximum number of bars of new music."""
ROOM_BEATS = 1024
"""Quarter notes that a prompt must leave free for new music; a file may have 65,536."""


@dataclass(frozen=True)
class Prompt:
    """A MIDI file as a prompt: its tokens, and where the new music begins."""

    name: str
    data: bytes
    """The whole file, or only the part before the splice if the rest was cut off."""
    timing: Timing
    """Timing of `data`, with at least 12 ticks per quarter note."""
    facts: PromptFacts
    splice: int
    """Where the new music begins, in ticks of `timing.counted`: a notated bar line."""
    sequence: TokenSequence
    """Tokens of whole bars up to the splice, without EOS; with a gap before other music, of all
    bars, without the notes that are replaced."""
    bar_tokens: NDArray[np.int64]
    """Number of Bar tokens in `ids` before each of its notated bar lines (bars + 1,)."""
    parts: Parts = ALL_PARTS
    """Which tracks the model reads, and which may play."""
    first_bar: int | None = None
    """The first bar that the model reads, from 1; None if none was chosen."""
    gap: Gap | None = None
    """The bars and tracks that are to be written; None if new music follows at the end."""
    sections: tuple[Phrase, ...] = ()
    """Sections that the user sees, from the first bar on; further ones are found by analysis."""

    @property
    def score(self) -> Score:
        """The music of `data`."""
        return self.timing.file

    @property
    def ids(self) -> NDArray[np.int32]:
        """Token ids of whole bars up to the splice, without EOS."""
        return self.sequence.ids

    @property
    def splice_ticks(self) -> int:
        """Where the new music begins, in ticks of `score`."""
        return int(self.timing.to_file(np.array([self.splice]))[0])

    @property
    def starts_at(self) -> int:
        """Tick of `timing.counted` from which on notes do not belong to the music before."""
        return self.splice if self.gap is None else self.gap.edge

    @property
    def bars(self) -> int:
        """Number of notated bars up to the splice."""
        return len(self.bar_tokens) - 1

    @property
    def bars_before(self) -> int:
        """Number of notated bars before the new music."""
        return self.bars if self.gap is None else self.gap.first

    def line(self, bar: int) -> int:
        """Return the start of a bar before the splice, counted from 0, in ticks of `score`."""
        lines = notated_lines(self.timing.counted, self.splice)
        return int(self.timing.to_file(lines[bar : bar + 1])[0])

    def first_bar_heard(self, bars: int = 0) -> int:
        """Return the first notated bar of which the model reads at least a part, counted from 1."""
        return int(np.searchsorted(self.bar_tokens, self.first_heard(bars), side="right"))

    def tokens_heard(self) -> int:
        """Return the number of tokens that the model reads."""
        return len(self.ids) - int(np.flatnonzero(self.ids == BAR)[self.first_heard()])

    @property
    def bar_lengths(self) -> NDArray[np.int64]:
        """Number of tokens of each notated bar (bars,) in `ids`."""
        starts = np.append(np.flatnonzero(self.ids == BAR), len(self.ids))
        return np.diff(starts[self.bar_tokens])

    def first_heard(self, bars: int = 0) -> int:
        """Return the index of the first Bar token that the model reads, among those of `ids`.

        The model reads from `first_bar` on. If that is None, it reads the last `bars` notated bars.
        If `first_bar` is given or `bars` is 0, it reads at most the last HEARD_TOKENS tokens.
        """
        first = _first_in_room(self.ids, self.bar_tokens)
        if self.first_bar is not None:
            return max(first, int(self.bar_tokens[self.first_bar - 1]))
        return int(self.bar_tokens[max(self.bars - bars, 0)]) if bars else first


def read_prompt(
    data: bytes,
    name: str = "prompt.mid",
    last_bar: int | None = None,
    *,
    tokenizer: Remi | None = None,
    beats: BeatSource = "auto",
    first_bar: int | None = None,
    heard: Collection[int] | None = None,
    played: Collection[int] | None = None,
    score: Score | None = None,
    passage: Passage | None = None,
) -> Prompt:
    """Read a MIDI file as a prompt.

    New music begins at a notated bar line: after `last_bar`, or after the last note and the rests
    with which the file ends. The last notes may sound beyond this line by a quarter note. If they
    are longer, new music begins later, but at most two bars after the bar in which the last note
    begins. The model reads notes as sustained by the pedal, up to the splice.

    Args:
        data: the MIDI file.
        name: the name of the file in error messages.
        last_bar: the last bar of the prompt, from 1; later bars are cut off. Default: all bars.
        tokenizer: the model's tokenizer. Default: that of the piano model.
        beats: the source of bars and beats.
        first_bar: the first bar that the model reads, from 1. Default: see `Prompt.first_heard`.
        heard: numbers of the tracks that the model reads, from 0. Default: all.
        played: numbers of the tracks that may play in the new music, from 0. Default: all.
        score: the result of `read_midi` for `data`, if already known.
        passage: the bars and tracks that are to be written, instead of new bars at the end; the
            model reads the others. Bars and tracks of the prompt cannot be chosen then.

    Raises:
        MidiError: the file cannot be continued, or there is no such bar or track.
        TokenizerError: the model cannot write the passage.
    """
    tokenizer = tokenizer or PianoRemi()
    score = read_midi(data, name=name) if score is None else score
    with _naming(name):
        whole = _count_bars(score, tokenizer, beats)
        if passage is not None and not _continues(passage, whole, tokenizer):
            return _read_around(passage, name, data, whole, tokenizer)
        parts = Parts.of(score, heard, played)
        bars = _check_region(whole, first_bar, last_bar)
    part = _read_part(data, name, score, whole, bars, parts, tokenizer)
    with _naming(name):
        _check_tracks(part, whole, parts, tokenizer)
    facts = _report(part, whole, parts, tokenizer, first_bar or 1)
    return Prompt(
        name,
        part.data,
        part.timing,
        facts,
        part.splice,
        part.sequence,
        part.bar_tokens,
        parts,
        first_bar,
    )


def passage_options(options: MusicOptions, passage: Passage, prompt: Prompt) -> MusicOptions:
    """Return the options with the length of a passage."""
    last = prompt.facts.bars if passage.last_bar is None else passage.last_bar
    return replace(options, bars=last - passage.first_bar + 1, seconds=None)


class _CountedFile(NamedTuple):
    """A whole file, counted in bars."""

    timing: Timing
    choice: BeatChoice
    lines: NDArray[np.int64]
    """At least `bars` + 2 notated bar lines, in ticks of `timing.counted`."""
    bars: int
    """Number of bars before the new music if nothing is cut off."""
    resting: int
    """Number of these bars at the end that are empty."""


class _Part(NamedTuple):
    """The bars of a file up to the new music, and their tokens."""

    data: bytes
    timing: Timing
    lines: NDArray[np.int64]
    """The bar lines of these bars and of the first new one (bars + 2,)."""
    sequence: TokenSequence
    bar_tokens: NDArray[np.int64]

    @property
    def bars(self) -> int:
        """Number of notated bars."""
        return len(self.lines) - 2

    @property
    def splice(self) -> int:
        """Where the new music begins, in ticks of `timing.counted`."""
        return int(self.lines[-2])


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Prefix error messages with the name of the file."""
    try:
        yield
    except MidiError as error:
        raise MidiError(f"{name}: {error}") from error


def _count_bars(score: Score, tokenizer: Remi, beats: BeatSource) -> _CountedFile:
    """Count a file in bars and beats, and find the bar line at which new music can begin."""
    if not heard_tracks(score, tokenizer):
        raise MidiError(
            f"found {'drums only' if score.num_notes else 'no notes'}, expected notes of a piano "
            "or another pitched instrument; choose another file"
        )
    choice = find_beats(score, beats)
    is_own = choice.beats is None
    least = STEPS_PER_BEAT if is_own else FINE_TICKS
    file = score.refined(-(-least // score.ticks_per_beat))
    timing = Timing.of(file, choice.beats)
    counted = timing.counted
    tracks = heard_tracks(counted, tokenizer)
    onset = max(int(track.notes[:, 0].max()) for track in tracks)
    end = max(track.end_ticks for track in tracks)
    lasting = max(track.end_ticks for track in counted.tracks)
    # rests at the end of the file, in its own bars
    rests = counted.end_ticks if is_own and counted.end_ticks > lasting else 0
    lines = notated_lines(counted, max(onset + 1, rests), WAITING_BARS + 2)
    bars = BarMap.of(lines, counted.ticks_per_beat)
    onset, end = bars.steps(np.array([onset, end])).tolist()
    first = int(np.searchsorted(bars.starts, onset, side="right"))
    rung_out = int(np.searchsorted(bars.starts, end - OVERHANG_STEPS))
    after_rests = int(np.searchsorted(lines, rests, side="right")) - 1
    waits = min(max(first, rung_out), first + WAITING_BARS)
    until = max(waits, after_rests)
    first_empty = int(np.searchsorted(lines, lasting))  # no track sounds from this bar line on
    resting = max(until - max(waits, first_empty), 0)
    return _CountedFile(timing, choice, lines, until, resting)


def _check_region(whole: _CountedFile, first_bar: int | None, last_bar: int | None) -> int:
    """Return the number of bars of the prompt. Raises MidiError for a bar that does not exist."""
    bars = whole.bars if last_bar is None else last_bar
    if not 1 <= bars <= whole.bars:
        raise MidiError(f"the last bar of the prompt is {last_bar}, expected 1 to {whole.bars}")
    if first_bar is not None and not 1 <= first_bar <= bars:
        raise MidiError(f"the first bar of the prompt is {first_bar}, expected 1 to {bars}")
    beat = int(whole.lines[bars]) / whole.timing.counted.ticks_per_beat
    if beat > MAX_BEATS - ROOM_BEATS:
        raise MidiError(
            f"the music ends at quarter note {int(beat):,}, expected at most "
            f"{MAX_BEATS - ROOM_BEATS:,} to leave room for new music; shorten the file"
        )
    return bars


def _read_part(
    data: bytes,
    name: str,
    score: Score,
    whole: _CountedFile,
    bars: int,
    parts: Parts,
    tokenizer: Remi,
) -> _Part:
    """Read the first `bars` bars of a file as the model reads them."""
    data, timing = _cut(data, name, score, whole, bars)
    lines = whole.lines[: bars + 2]
    with _naming(name):
        bars_heard = BarMap.of(lines[:-1], timing.counted.ticks_per_beat)
        on_grid = bars_heard.on_grid(_as_heard(timing, int(lines[-2]), parts))
        return _Part(data, timing, lines, *_encode(on_grid, bars_heard, tokenizer))


def _report(
    part: _Part, whole: _CountedFile, parts: Parts, tokenizer: Remi, first_bar: int
) -> PromptFacts:
    """Report on a prompt to the user."""
    return prompt_facts(
        whole.timing,
        whole.choice,
        tokenizer,
        bars=whole.bars,
        parts=parts,
        region=Region.of(part.timing, part.lines, first_bar, part.bars),
        more=_bar_notices(part, whole.resting if part.bars == whole.bars else 0),
    )


def _cut(
    data: bytes, name: str, score: Score, whole: _CountedFile, bars: int
) -> tuple[bytes, Timing]:
    """Return the file, cut after its first `bars` bars, and its timing.

    A file that was cut is parsed again, since notes without a note-off now end at the cut.
    """
    if bars == whole.bars:
        return data, whole.timing
    file = whole.timing.file
    factor = file.ticks_per_beat // score.ticks_per_beat
    end = int(whole.timing.to_file(whole.lines[bars : bars + 1])[0])
    data = cut_midi(data, -(-end // factor), score.ticks_per_beat)
    # beats after the cut are not used
    until = float(file.seconds_at(end))
    cut = read_midi(data, name=name, drums=drum_places(score)).refined(factor)
    resolution = None if whole.choice.beats else whole.timing.counted.ticks_per_beat
    return data, Timing.of(cut, whole.choice.beats, until, resolution)


def _continues(passage: Passage, whole: _CountedFile, tokenizer: Remi) -> bool:
    """Return whether a passage of all tracks begins after the end of a file. Raises MidiError."""
    bars, first = whole.bars, passage.first_bar
    last = bars if passage.last_bar is None else passage.last_bar
    if not 1 <= first <= bars + 1:
        raise MidiError(
            f"the bars that are to be written begin at bar {first}, expected 1 to {bars + 1}: the "
            f"piece has {plural(bars, 'bar')}"
        )
    if not first <= last <= first + MOST_BARS - 1:
        raise MidiError(
            f"the last bar that is to be written is {last}, expected {first} to "
            f"{first + MOST_BARS - 1}"
        )
    if first <= bars or passage.instrument is not None:
        return False
    ranks = tokenizer.track_ranks(whole.timing.file.tracks)
    return passage.tracks is None or all(
        number in passage.tracks for number, rank in enumerate(ranks) if rank >= 0
    )


def _read_around(
    passage: Passage, name: str, data: bytes, whole: _CountedFile, tokenizer: Remi
) -> Prompt:
    """Return the prompt whose passage is to be written."""
    timing, counted = whole.timing, whole.timing.counted
    stop = whole.bars if passage.last_bar is None else passage.last_bar
    count = max(whole.bars, stop)
    lines = notated_lines(counted, int(whole.lines[whole.bars]), count - whole.bars + 1)
    gap = Gap.of(passage, timing, lines[: count + 1], stop, tokenizer)
    bars = BarMap.of(lines[: (gap.first if gap.is_last else count) + 1], counted.ticks_per_beat)
    sequence, bar_tokens = _encode(bars.on_grid(gap.kept), bars, tokenizer)
    facts = prompt_facts(
        timing,
        whole.choice,
        tokenizer,
        bars=whole.bars,
        parts=ALL_PARTS,
        region=Region.of(timing, lines, 1, whole.bars),
        more=_gap_notices(gap, whole, stop, len(sequence.ids)),
        is_continued=False,
    )
    parts = Parts.of(timing.file, None, gap.numbers)
    return Prompt(
        name, data, timing, facts, int(lines[gap.first]), sequence, bar_tokens, parts, gap=gap
    )


def _gap_notices(gap: Gap, whole: _CountedFile, stop: int, tokens: int) -> list[str]:
    """Return notices about bars to be written, up to `stop`, in a document of some tokens."""
    notices = gap.notices()
    if whole.choice.source != "file":
        ticks = [gap.start_tick, gap.stop_tick]
        begin, end = whole.timing.file.seconds_at(ticks).tolist()
        written = Region(gap.first + 1, gap.stop, gap.start_tick, gap.stop_tick)
        notices.append(
            f"{written} by these beats: new music is written from {begin:.1f} to {end:.1f} s"
        )
    if gap.is_last:
        return notices
    if stop > whole.bars:
        notices.append(
            f"the piece ends with bar {whole.bars}; after it, only what is written plays"
        )
    if tokens > HEARD_TOKENS:
        notices.append(
            "the piece is long; the model reads as many bars around the new music as fit"
        )
    return notices


def _encode(score: Score, bars: BarMap, tokenizer: Remi) -> tuple[TokenSequence, NDArray[np.int64]]:
    """Return tokens of the notated `bars` of a score in grid steps, and where each of them begins.

    The latter is the number of Bar tokens before each bar line (bars + 1,), since a long notated
    bar has several.
    """
    bar_tokens = np.searchsorted(bars.vocabulary_lines(), bars.starts)
    num_bars = int(bar_tokens[-1])
    return tokenizer.encode(score, analyse(score), ends=False, num_bars=num_bars), bar_tokens


def _as_heard(timing: Timing, splice: int, parts: Parts) -> Score:
    """Return the counted score that is encoded: notes are sustained by the pedal, up to the splice.

    Tracks that may play but are not read are kept without notes, because they need a rank.
    """
    counted = timing.counted
    tracks: list[Track] = []
    for track, held in zip(counted.tracks, extend_by_pedal(counted).tracks, strict=True):
        if len(track) and parts.hears(track):
            notes = held.notes.copy()
            until = np.maximum(splice - notes[:, 0], track.notes[:, 1])
            notes[:, 1] = np.minimum(notes[:, 1], until)
            tracks.append(replace(held, notes=notes))
        elif len(track) and parts.may_play(track):
            tracks.append(track.without_events())
    return replace(counted, tracks=tuple(tracks), tempos=timing.heard_tempos)


def _check_tracks(part: _Part, whole: _CountedFile, parts: Parts, tokenizer: Remi) -> None:
    """Raise MidiError if the model would read no note, or if no track with notes may play."""
    bars, sequence = part.bars, part.sequence
    if not tokenizer.decode(sequence.ids, tracks=sequence.tracks).num_notes:
        if parts.heard is not None:
            problem = (
                f"no usable notes up to bar {bars} in the tracks of the prompt; tick another track "
                "under Prompt"
            )
        elif bars < whole.bars:
            problem = f"no usable notes up to bar {bars}; end the prompt at a later bar"
        else:
            problem = "no notes that the model reads; choose another file"
        raise MidiError(problem)
    players = [track for track in parts.of_score(part.timing.file) if parts.may_play(track)]
    if max(tokenizer.track_ranks(players), default=-1) < 0:
        raise MidiError(
            f"no usable notes up to bar {bars} in the tracks that may play; tick another track "
            "under May play"
        )


def _bar_notices(part: _Part, resting: int) -> list[str]:
    """Return notices about the bars of a prompt, the last `resting` of which are empty."""
    notices: list[str] = []
    if resting:
        notices.append(
            f"the file ends with {plural(resting, 'empty bar')}; the new music begins after "
            f"{'it' if resting == 1 else 'them'}"
        )
    bars = BarMap.of(part.lines, part.timing.counted.ticks_per_beat)
    if (bars.sizes != np.diff(bars.starts)).any():
        notices.append(
            "some bars end between two eighth notes; the model reads them as if they ended on the "
            "next one, but new bars have the correct length"
        )
    if first := _first_in_room(part.sequence.ids, part.bar_tokens):
        heard = int(np.count_nonzero(part.bar_tokens[:-1] >= first))
        most = f"last {heard:,} of {part.bars:,} bars" if heard else "end of the last bar"
        notices.append(f"the prompt is long; the model reads at most the {most}")
    return notices


def _first_in_room(ids: NDArray[np.int32], bar_tokens: NDArray[np.int64]) -> int:
    """Return the index of the first Bar token among the last HEARD_TOKENS tokens.

    It starts a notated bar, unless the last notated bar alone does not fit.
    """
    left = len(ids) - np.flatnonzero(ids == BAR)
    first = min(int(np.count_nonzero(left > HEARD_TOKENS)), len(left) - 1)
    notated = bar_tokens[:-1]
    return int(min(notated[notated >= first], default=first))
