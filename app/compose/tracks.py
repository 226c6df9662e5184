"""The instruments of a piece: what they are called, and which of them plays which new note."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from tokenization.errors import MidiError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from tokenization.score import Score, Track
    from tokenization.tokenizer import Tokenizer

_HEARD_OF_A_TRACK = 200
"""Last notes of a track that say how high it lies."""
MOST_NAME = 60
"""Letters of a track's name that are told at most."""

_Place = tuple[int | None, int, int]


@dataclass(frozen=True)
class Parts:
    """Which tracks of a file the model hears, and which may play after it; None: all.

    Tracks are known by their chunk, channel and program: some are gone where a file is cut.
    """

    unheard: frozenset[_Place] = frozenset()
    silent: frozenset[_Place] = frozenset()
    heard: frozenset[int] | None = None
    """What was chosen, as `played`."""
    played: frozenset[int] | None = None

    @classmethod
    def of(cls, score: Score, heard: Iterable[int] | None, played: Iterable[int] | None) -> Parts:
        """Those of a file whose tracks are known by their numbers, from 0; None: all.

        Raises MidiError for a number that no track has.
        """
        places = [_place(track) for track in score.tracks]

        def left_out(numbers: frozenset[int] | None) -> frozenset[_Place]:
            chosen = frozenset(range(len(places))) if numbers is None else numbers
            if unknown := chosen.difference(range(len(places))):
                raise MidiError(f"asked for track {min(unknown)}, expected 0 to {len(places) - 1}")
            return frozenset(place for at, place in enumerate(places) if at not in chosen)

        heard, played = (None if n is None else frozenset(n) for n in (heard, played))
        return cls(left_out(heard), left_out(played), heard, played)

    def hears(self, track: Track) -> bool:
        """Whether the model is to hear it."""
        return _place(track) not in self.unheard

    def may_play(self, track: Track) -> bool:
        """Whether it may play in the new music."""
        return _place(track) not in self.silent

    def of_score(self, score: Score) -> list[Track]:
        """Tracks with notes that are heard or may play: what tokens count tracks by."""
        return [
            track
            for track in score.tracks
            if len(track) and (self.hears(track) or self.may_play(track))
        ]


ALL_PARTS = Parts()
"""Every track is heard and may play."""


def _place(track: Track) -> _Place:
    return track.chunk, track.channel, track.program


def instrument_name(track: Track) -> str:
    """Name of what plays a track in General MIDI, and shorter ones of the two most music has."""
    if track.is_drum:
        return "Drums"
    if track.program == 0:
        return "Piano"
    import pretty_midi  # takes a second, which most music can do without

    return pretty_midi.program_to_instrument_name(track.program)


def track_names(tracks: Sequence[Track]) -> list[str]:
    """What tracks are called in their file, or what plays them; equal names are counted."""
    names = [track.name.strip()[:MOST_NAME] or instrument_name(track) for track in tracks]
    total, seen = Counter(names), Counter[str]()
    counted: list[str] = []
    for name in names:
        seen[name] += 1
        counted.append(f"{name} {seen[name]}" if total[name] > 1 else name)
    return counted


def share_among_tracks(
    new: Score, upload: Score, tokenizer: Tokenizer, joint: int, parts: Parts = ALL_PARTS
) -> Score:
    """New notes in the tracks that they continue.

    What tokens call one track can be several of the upload: a drum is struck by the track that
    strikes it most, other notes are played by the track that lies nearest, so that two hands go on
    in two tracks. Where these are different instruments, a piano or else the fullest plays all.

    Args:
        new: tracks as decoded, times in ticks of the upload.
        upload: what they continue.
        tokenizer: says which tracks of the upload each of them stands for.
        joint: where the new music begins, in ticks.
        parts: which of the upload's tracks may play.
    """
    playing = parts.of_score(upload)
    ranks = tokenizer.track_ranks(playing)
    shared: list[Track] = []
    for track, rank in zip(new.tracks, tokenizer.track_ranks(new.tracks), strict=True):
        if not len(track):
            continue
        players = [
            player
            for player, its_rank in zip(playing, ranks, strict=True)
            if its_rank == rank and parts.may_play(player) and len(_before(player, joint))
        ]
        if not players:
            shared.append(track)
            continue
        chosen = _by_drum if track.is_drum else _by_height
        which = chosen(track.notes, [_before(player, joint) for player in players], players)
        shared += [
            replace(player, notes=track.notes[which == index], controls=[], bends=[])
            for index, player in enumerate(players)
        ]
    return new.with_tracks(shared)


def _before(track: Track, end_ticks: int) -> NDArray[np.int64]:
    """Notes that begin before a time."""
    return track.notes[track.notes[:, 0] < end_ticks]


def _by_drum(
    notes: NDArray[np.int64], heard: Sequence[NDArray[np.int64]], _: Sequence[Track]
) -> NDArray[np.intp]:
    """(n,), the track that strikes each drum most, or the fullest for a new one."""
    counts = np.stack([np.bincount(rows[:, 2], minlength=128) for rows in heard])
    fullest = int(counts.sum(1).argmax())
    players = np.where(counts.any(0), counts.argmax(0), fullest)
    return players[notes[:, 2]]


def _by_height(
    notes: NDArray[np.int64], heard: Sequence[NDArray[np.int64]], players: Sequence[Track]
) -> NDArray[np.intp]:
    """(n,), the track of one family of instruments that lies nearest to each note."""
    pianos = [index for index, player in enumerate(players) if player.program < 8]
    among = pianos or list(range(len(players)))
    if len({players[index].program // 8 for index in among}) > 1:
        among = [max(among, key=lambda index: len(heard[index]))]
    heights = np.array([np.median(heard[index][-_HEARD_OF_A_TRACK:, 2]) for index in among])
    return np.array(among)[np.abs(notes[:, 2, None] - heights).argmin(1)]
