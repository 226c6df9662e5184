"""The bars and tracks of a piece that are to be written, as users choose them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from app.compose.tracks import instrument_name, instrument_names, track_names
from tokenization.errors import MidiError
from tokenization.score import Score, Track

DRUMS = 128
"""The number of drums among instruments, of which 0 to 127 are the programs of General MIDI."""
_BARS = re.compile(r"\s*(\d{1,9})\s*(?:-\s*(\d{1,9})\s*)?")
_MOST_LISTED = 40
"""Maximum number of tracks that a message names."""


@dataclass(frozen=True, kw_only=True)
class Passage:
    """The bars and tracks of a piece that are to be written; the others stay as they are.

    After the end of the piece, a passage of all tracks is a continuation.
    """

    first_bar: int = 1
    """The first bar, from 1."""
    last_bar: int | None = None
    """The last bar; None: that of the piece."""
    tracks: frozenset[int] | None = None
    """Numbers of the tracks, from 0; None: all that the model reads, or with an `instrument`, none.
    """
    rests: frozenset[int] = frozenset()
    """Numbers of tracks that rest in these bars: their notes are removed."""
    instrument: int | None = None
    """General MIDI program, 0-127, or 128 for drums, of a new track that is written as well."""

    def __post_init__(self) -> None:
        if self.rests & (self.tracks or frozenset()):
            raise ValueError("the same track is to be written and to rest, expected one of both")
        if self.instrument is not None and not 0 <= self.instrument <= DRUMS:
            raise ValueError(
                f"the instrument is {self.instrument}, expected 0 to 127, or {DRUMS} for drums"
            )

    @property
    def new_track(self) -> Track | None:
        """The new track, without notes."""
        if self.instrument is None:
            return None
        is_drum = self.instrument == DRUMS
        track = Track.of([], program=0 if is_drum else self.instrument, is_drum=is_drum)
        return Track(track.notes, track.program, is_drum, instrument_name(track))


def parse_bars(text: str) -> tuple[int, int]:
    """Return the first and last of some bars, such as `9-16` or `9`, from 1. Raises ValueError."""
    match = _BARS.fullmatch(text)
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 1 <= first <= last:
        raise ValueError(
            f"{text[:20]!r} are not bars, expected the first and the last one, counted from 1, "
            "such as 9-16"
        )
    return first, last


def find_tracks(text: str, tracks: Sequence[Track]) -> frozenset[int]:
    """Return the numbers, from 0, of the tracks that a text such as `bass,drums` names.

    Each word, separated by commas, is the number of a track from 1, a name, an instrument, or a
    part of one of these. A name that fits exactly takes precedence.

    Raises MidiError if a word fits no track.
    """
    names = track_names(tracks)
    instruments = [instrument_name(track) for track in tracks]
    places: set[int] = set()
    for word in filter(None, map(str.strip, text.split(","))):
        folded = word.casefold()
        numbers = [int(word) - 1] if word.isdecimal() and len(word) < 6 else []
        fitting = (
            [at for at, name in enumerate(names) if name.casefold() == folded]
            or [number for number in numbers if number < len(tracks)]
            or [at for at, name in enumerate(instruments) if name.casefold() == folded]
            or [
                at
                for at, (name, instrument) in enumerate(zip(names, instruments, strict=True))
                if folded in name.casefold() or folded in instrument.casefold()
            ]
        )
        if not fitting or min(fitting) < 0:
            raise MidiError(f"no track fits {word[:40]!r}; the tracks are {_listed(tracks)}")
        places.update(fitting)
    if not places:
        raise MidiError(f"no track is named; the tracks are {_listed(tracks)}")
    return frozenset(places)


def find_band(text: str) -> tuple[Track, ...]:
    """Return empty tracks of the instruments that are named, separated by commas.

    An instrument that is named twice plays twice; drums are one track. Raises ValueError.
    """
    words = [word.strip().casefold() for word in text.split(",") if word.strip()]
    band = sorted(0 if word == "piano" else find_instrument(word) for word in words)
    if not band:
        raise ValueError("the band has no instrument; name some, such as drums, acoustic bass")
    tracks = [Track.of([], program) for program in band if program != DRUMS]
    if DRUMS in band:
        tracks.insert(0, Track.of([], is_drum=True))
    return tuple(tracks)


def music_like(band: str | None) -> Score | None:
    """Return music that suits the same models as a band; None for pianos, or without a band."""
    tracks = find_band(band) if band else ()
    if all(track.program < 8 and not track.is_drum for track in tracks):
        return None
    return Score(1, (Track.of([(0, 1, 36, 64)], is_drum=True),))


def find_instrument(text: str) -> int:
    """Return the General MIDI program of an instrument, or `DRUMS`, by its name or a part of it.

    The part may be in the plural.
    Raises ValueError if no instrument fits, or several.
    """
    phrase = text.strip().casefold()
    names = [*instrument_names(), "Drums"]
    folded = [name.casefold() for name in names]
    words = phrase, phrase.removesuffix("s")
    exact = [[at for at, name in enumerate(folded) if name == word] for word in words]
    parts = [[at for at, name in enumerate(folded) if word and word in name] for word in words]
    for places in (*exact, *parts):
        if len(places) == 1:
            return places[0]
    matches = parts[1]
    close = get_close_matches(phrase, folded, 3, 0.5)
    fitting = matches or [folded.index(name) for name in close]
    examples = [names[at] for at in fitting] or ["Acoustic Bass", "String Ensemble 1", "Drums"]
    problem = "fits several instruments" if matches else "is not an instrument"
    raise ValueError(
        f"{text[:40]!r} {problem}, expected one name of General MIDI, such as "
        f"{', '.join(examples[:10])}"
    )


def _listed(tracks: Sequence[Track]) -> str:
    """Return the numbers and names of tracks, with their instruments where they differ."""
    items: list[str] = []
    for number, (track, name) in enumerate(zip(tracks, track_names(tracks), strict=True), 1):
        instrument = instrument_name(track)
        more = "" if name.startswith(instrument) else f" ({instrument})"
        items.append(f"{number} {name}{more}")
    if len(items) > _MOST_LISTED:
        items = [*items[:_MOST_LISTED], f"and {len(items) - _MOST_LISTED} others"]
    return ", ".join(items)
