"""Names and selects the tracks of a piece, and assigns new notes to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tokenization.errors import MidiError
from tokenization.grid import STEPS_PER_BEAT, notated_lines
from tokenization.midi.drums import parse_drums, with_drums
from tokenization.remi.remi import Remi
from tokenization.score import Score, Track

_HEIGHT_NOTES = 200
"""The height of a track is the median pitch of at most this many of its last notes."""
MOST_NAME = 60
"""Maximum length of a track's name, in characters."""

_Place = tuple[int | None, int, int]


@dataclass(frozen=True)
class Parts:
    """Which tracks of a file the model reads, and which may play in the new music.

    Tracks are identified by chunk, channel and program, since a file that is cut may have fewer.
    """

    unheard: frozenset[_Place] = frozenset()
    silent: frozenset[_Place] = frozenset()
    heard: frozenset[int] | None = None
    """Numbers of the tracks that the model reads, from 0; None: all."""
    played: frozenset[int] | None = None
    """Numbers of the tracks that may play, from 0; None: all."""

    @classmethod
    def of(cls, score: Score, heard: Iterable[int] | None, played: Iterable[int] | None) -> Parts:
        """Select tracks by their numbers, from 0; None: all.

        Raises MidiError if there is no track with one of the numbers.
        """
        places = [_place(track) for track in score.tracks]

        def left_out(numbers: frozenset[int] | None) -> frozenset[_Place]:
            included = frozenset(range(len(places))) if numbers is None else numbers
            if unknown := included.difference(range(len(places))):
                raise MidiError(
                    f"there is no track {min(unknown)}, expected 0 to {len(places) - 1}"
                )
            return frozenset(place for at, place in enumerate(places) if at not in included)

        heard, played = (None if n is None else frozenset(n) for n in (heard, played))
        return cls(left_out(heard), left_out(played), heard, played)

    def hears(self, track: Track) -> bool:
        """Return whether the model reads a track."""
        return _place(track) not in self.unheard

    def may_play(self, track: Track) -> bool:
        """Return whether a track may play in the new music."""
        return _place(track) not in self.silent

    def of_score(self, score: Score) -> list[Track]:
        """Return the tracks with notes that are read or may play: those that have a rank."""
        return [
            track
            for track in score.tracks
            if len(track) and (self.hears(track) or self.may_play(track))
        ]

    def joining(self, tracks: Sequence[Track], tokenizer: Remi) -> frozenset[int]:
        """Return the ranks that may play but whose track is not read; `tracks` have all ranks."""
        ranks = list(zip(tokenizer.track_ranks(tracks), tracks, strict=True))
        heard = {rank for rank, track in ranks if self.hears(track)}
        return frozenset(rank for rank, _ in ranks if rank not in heard)


ALL_PARTS = Parts()
"""The model reads all tracks, and all may play."""


def mark_drums(score: Score, drums: str | None, name: str) -> Score:
    """Return the score with the drums that `MusicOptions.drums` names, if it names any.

    Raises MidiError, with the name of the file, if there is no such track.
    """
    if drums is None:
        return score
    try:
        return with_drums(score, parse_drums(drums))
    except MidiError as error:
        raise MidiError(f"{name}: drums: {error}") from error


def _place(track: Track) -> _Place:
    return track.chunk, track.channel, track.program


def instrument_name(track: Track) -> str:
    """Return the name of a track's instrument in General MIDI, or `Drums` or `Piano`."""
    if track.is_drum:
        return "Drums"
    if track.program == 0:
        return "Piano"
    return instrument_names()[track.program]


def instrument_names() -> list[str]:
    """Return the names of the 128 instruments of General MIDI."""
    import pretty_midi  # takes a second

    return list(map(pretty_midi.program_to_instrument_name, range(128)))


def track_names(tracks: Sequence[Track]) -> list[str]:
    """Return the names of tracks, or else of their instruments; equal names are numbered."""
    names = [track.name.strip()[:MOST_NAME] or instrument_name(track) for track in tracks]
    total, seen = Counter(names), Counter[str]()
    numbered: list[str] = []
    for name in names:
        seen[name] += 1
        numbered.append(f"{name} {seen[name]}" if total[name] > 1 else name)
    return numbered


def share_among_tracks(
    new: Score, upload: Score, tokenizer: Remi, splice: int, parts: Parts = ALL_PARTS
) -> Score:
    """Assign new notes to the tracks of the upload that they continue.

    One track in tokens may correspond to several tracks of the upload. Each drum goes to the track
    that plays it most often, any other note to the track that plays this key most often at this
    place of a bar, or else to that whose notes are nearest in pitch: so two hands stay in two
    tracks, and bars that come back are played as they were. If these tracks are different
    instruments, the pianos play all notes, or the track with the most notes if there is no piano.
    Notes of tracks that may not play are left out.

    Args:
        new: decoded tracks, in ticks of the upload.
        upload: the music that they continue.
        tokenizer: the model's tokenizer.
        splice: where the new music begins, in ticks.
        parts: which tracks of the upload may play.
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
            if its_rank == rank and len(_before(player, splice))
        ]
        if not players:
            shared.append(track)
            continue
        may_play = [parts.may_play(player) for player in players]
        heard = [_before(player, splice) for player in players]
        if track.is_drum:
            which = _by_drum(track.notes, heard)
        else:
            which = _by_height(track.notes, heard, players, may_play, upload)
        shared += [
            replace(player.without_events(), notes=track.notes[which == index])
            for index, player in enumerate(players)
            if may_play[index]
        ]
    return new.with_tracks(shared)


def _before(track: Track, end_ticks: int) -> NDArray[np.int64]:
    """Return the notes of a track that begin before a tick."""
    return track.notes[track.notes[:, 0] < end_ticks]


def _by_drum(notes: NDArray[np.int64], heard: Sequence[NDArray[np.int64]]) -> NDArray[np.intp]:
    """Return the track (n,) that plays each drum most; for new drums, the one with most notes."""
    counts = np.stack([np.bincount(rows[:, 2], minlength=128) for rows in heard])
    fullest = int(counts.sum(1).argmax())
    players = np.where(counts.any(0), counts.argmax(0), fullest)
    return players[notes[:, 2]]


def _by_height(
    notes: NDArray[np.int64],
    heard: Sequence[NDArray[np.int64]],
    players: Sequence[Track],
    may_play: Sequence[bool],
    upload: Score,
) -> NDArray[np.intp]:
    """Return the track (n,) of one family of instruments that plays each note.

    It is the one that plays this key most often at this place of a bar, or else the nearest one.
    Tracks that may play determine the family; all tracks of this family share the notes.
    """
    families = [player.program // 8 for player in players]
    able = [index for index, plays in enumerate(may_play) if plays] or list(range(len(players)))
    able = [index for index in able if families[index] == 0] or able  # pianos
    among = [index for index, family in enumerate(families) if family == families[able[0]]]
    if len({families[index] for index in able}) > 1:
        among = [max(able, key=lambda index: len(heard[index]))]
    heights = np.array([np.median(heard[index][-_HEIGHT_NOTES:, 2]) for index in among])
    which = np.abs(notes[:, 2, None] - heights).argmin(1)
    if len(among) > 1 and len(notes):
        lines = notated_lines(upload, int(notes[:, 0].max()), 1)
        places = _places(notes, lines, upload.ticks_per_beat)
        tables = (np.sort(_places(heard[one], lines, upload.ticks_per_beat)) for one in among)
        counts = np.stack(
            [np.searchsorted(row, places, "right") - row.searchsorted(places) for row in tables]
        )
        which = np.where(counts.any(0), counts.argmax(0), which)
    return np.array(among)[which]


def _places(
    notes: NDArray[np.int64], lines: NDArray[np.int64], ticks_per_beat: int
) -> NDArray[np.int64]:
    """Return the place in a bar and the key of notes (n, 4), as one number (n,)."""
    onsets = notes[:, 0] + ticks_per_beat // (2 * STEPS_PER_BEAT)
    since = onsets - lines[lines.searchsorted(onsets, "right") - 1]
    return since * STEPS_PER_BEAT // ticks_per_beat * 128 + notes[:, 2]
