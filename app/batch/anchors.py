"""Real continuations, which follow the prompt in its file, and low anchors made of them."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

import numpy as np

from app.batch.excerpt import Excerpt, bars_before
from app.compose.prompt.prompt import Prompt, read_prompt
from app.errors import CommandError
from app.text import plural
from tokenization.grid import notated_lines
from tokenization.remi.multitrack import MultitrackRemi
from tokenization.score import all_notes

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from app.batch.excerpt import ClipKind
    from app.compose.options import BeatSource
    from tokenization.score import Score, Track

RealKind = Literal["real", "shuffled_bars", "shuffled_notes"]
"""The real bars after the splice; and low anchors, these bars in another order, or with the pitches
of each track in another order."""
_TRIES = 32
"""Orders of pitches that are tried; the one with the fewest repeated keys is used."""


@lru_cache(maxsize=2)  # beats of recordings take a second to estimate
def real_music(
    data: bytes, name: str, last_bar: int | None, bars: int, beats: BeatSource
) -> Prompt:
    """Return the file up to the end of `bars` bars after `last_bar`.

    Notes that sound there end there.

    Raises:
        MidiError: the file cannot be read.
        CommandError: no last bar is given, or the file is too short.
    """
    if last_bar is None:
        raise CommandError(
            f"{name}: a real continuation needs last_bar, the last bar of the prompt; set it, so "
            "that the bars after it are the real continuation"
        )
    whole = read_prompt(data, name, tokenizer=MultitrackRemi(), beats=beats)
    if whole.bars < last_bar + bars:
        raise CommandError(
            f"{name}: the file has {plural(whole.bars, 'bar')}, but {plural(bars, 'bar')} of real "
            f"music after bar {last_bar} need {last_bar + bars}; choose a longer file, a smaller "
            "last_bar or fewer bars"
        )
    return read_prompt(data, name, last_bar + bars, tokenizer=MultitrackRemi(), beats=beats)


def check_real_music(
    data: bytes, name: str, last_bar: int | None, bars: int, beats: BeatSource
) -> float:
    """Return the second at which the real bars begin.

    Raises the errors of `real_music`, and CommandError if these bars contain no note.
    """
    music = real_music(data, name, last_bar, bars, beats)
    assert last_bar is not None
    onsets = all_notes(music.score.tracks)[:, 0]
    if not (onsets >= music.line(last_bar)).any():
        raise CommandError(
            f"{name}: there is no note in the {plural(bars, 'bar')} after bar {last_bar}; choose "
            "another last_bar"
        )
    return float(music.score.seconds_at(music.line(last_bar)))


def anchor_of(
    music: Prompt,
    last_bar: int,
    kind: RealKind,
    seed: int,
    part: tuple[ClipKind, int],
) -> Excerpt:
    """Return the part of a clip of real music, or of a low anchor.

    Args:
        music: the result of `real_music`.
        last_bar: the last bar of the prompt, from 1.
        kind: what follows the prompt.
        seed: of the order of bars or notes.
        part: what the clip contains, and how many bars of the prompt if it is `tail`.
    """
    scores = {"shuffled_bars": shuffle_bars, "shuffled_notes": shuffle_notes}
    score = scores[kind](music, last_bar, seed) if kind in scores else music.score
    kept = bars_before(*part, last_bar)
    begin = music.line(last_bar - kept) if kept < last_bar else 0
    return Excerpt(score, begin, music.line(last_bar), music.splice_ticks, kept + 1)


def shuffle_bars(music: Prompt, last_bar: int, seed: int) -> Score:
    """Return the piece with the bars after `last_bar` in another order.

    Bars change places only with bars of the same notated length, so that metres and tempos stay as
    they are. Notes move with the bar in which they begin.
    """
    lines = np.array([music.line(bar) for bar in range(last_bar, music.bars + 1)])
    notated = np.diff(notated_lines(music.timing.counted, music.splice))[last_bar:]
    places = _other_places(notated, np.random.default_rng(seed))
    lengths = np.diff(lines)  # those of estimated beats all differ slightly

    def move(track: Track) -> NDArray[np.int64]:
        notes = track.notes.copy()
        new = np.flatnonzero(notes[:, 0] >= lines[0])
        bar = np.minimum(np.searchsorted(lines, notes[new, 0], side="right"), len(places)) - 1
        length, new_length = lengths[bar], lengths[places[bar]]
        in_bar = (notes[new, 0] - lines[bar]) * new_length // length
        notes[new, 0] = lines[places[bar]] + in_bar
        notes[new, 1] = notes[new, 1] * new_length // length
        return notes

    return _with_notes(music, int(lines[0]), move)


def shuffle_notes(music: Prompt, last_bar: int, seed: int) -> Score:
    """Return the piece with the pitches of each track after `last_bar` in another order.

    The rhythm stays as it is, and so do the key and the range, since the pitches are the same.
    """
    splice = music.line(last_bar)
    random = np.random.default_rng(seed)

    def move(track: Track) -> NDArray[np.int64]:
        notes = track.notes.copy()
        new = np.flatnonzero(notes[:, 0] >= splice)
        orders = [random.permutation(notes[new, 2]) for _ in range(_TRIES)]
        ends = notes[new, 0] + notes[new, 1]
        notes[new, 2] = min(orders, key=lambda pitches: _repeated(notes[new, 0], ends, pitches))
        return notes

    return _with_notes(music, splice, move)


def _repeated(onsets: NDArray[np.int64], ends: NDArray[np.int64], pitches: NDArray) -> int:
    """Return how many notes begin while their key is still held."""
    order = np.lexsort((onsets, pitches))
    same = pitches[order][1:] == pitches[order][:-1]
    return int((same & (onsets[order][1:] < ends[order][:-1])).sum())


def _other_places(lengths: NDArray[np.int64], random: np.random.Generator) -> NDArray[np.intp]:
    """Return a new place for each bar: another one, unless no other bar has the same length."""
    places = np.arange(len(lengths))
    for length in np.unique(lengths):
        # a cycle through the bars of one length, in a random order, moves each of them
        cycle = random.permutation(np.flatnonzero(lengths == length))
        places[cycle] = np.roll(cycle, 1)
    return places


def _with_notes(music: Prompt, splice: int, move: Callable[[Track], NDArray[np.int64]]) -> Score:
    """Return the piece with the notes that `move` returns.

    After the splice, a note ends when its key is played again, and at the end of the piece.
    """
    end = music.splice_ticks
    tracks: list[Track] = []
    for track in music.score.tracks:
        notes = move(track)
        notes = notes[np.lexsort((notes[:, 0], notes[:, 2]))]
        until = np.full(len(notes), end)
        again = (notes[1:, 2] == notes[:-1, 2]) & (notes[1:, 0] > notes[:-1, 0])
        until[:-1][again] = notes[1:, 0][again]
        late = notes[:, 0] + notes[:, 1] > splice
        notes[late, 1] = np.minimum(notes[late, 1], until[late] - notes[late, 0])
        tracks.append(replace(track, notes=notes))
    return replace(music.score, tracks=tuple(tracks))
