"""Names of tracks, and the tracks that play new notes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.compose.tracks import (
    MOST_NAME,
    Parts,
    mark_drums,
    share_among_tracks,
    track_names,
)
from tokenization.errors import MidiError
from tokenization.remi.multitrack import MultitrackRemi
from tokenization.remi.remi import PianoRemi
from tokenization.score import Score, Track

HIGH, LOW = Track.of([(0, 10, 80, 80)]), Track.of([(0, 10, 40, 80)], program=1)
NEW = Track.of([(100, 10, pitch, 80) for pitch in (45, 59, 61, 75)])


def shared(*upload: Track, new: Track = NEW, parts: Parts | None = None) -> list[list[int]]:
    """Pitches of the new notes that each track plays."""
    tokenizer = MultitrackRemi() if new.is_drum else PianoRemi()
    score = Score(12, upload)
    found = share_among_tracks(Score(12, (new,)), score, tokenizer, 100, parts or Parts())
    return [track.notes[:, 2].tolist() for track in found.tracks]


def test_tracks_without_a_name_have_that_of_their_instrument():
    drums = Track.of([], is_drum=True)
    long = Track(HIGH.notes, name=" x" * MOST_NAME)
    names = track_names([HIGH, drums, Track.of([], program=33), HIGH, long])
    assert names[:4] == ["Piano 1", "Drums", "Electric Bass (finger)", "Piano 2"]
    assert len(names[4]) == MOST_NAME


def test_notes_go_to_the_track_that_is_nearest_in_pitch():
    assert shared(HIGH, LOW) == [[61, 75], [45, 59]]
    # or to the one that plays this key at this place of a bar
    crossing = Track.of([(0, 10, 80, 80), (3, 10, 59, 80), (52, 10, 45, 80)])
    assert shared(crossing, LOW) == [[45, 59, 61, 75], []]
    # of different instruments, a piano plays all, or the track with most notes
    flute = Track.of([(at, 10, 76, 80) for at in range(9)], program=73)
    bass = Track.of([(0, 10, 40, 80)], program=33)
    assert shared(flute, LOW) == [[], [45, 59, 61, 75]]
    assert shared(bass, flute) == [[], [45, 59, 61, 75]]
    # a drum goes to the track that strikes it most
    kick = Track.of([(at, 1, 36, 80) for at in range(3)], is_drum=True)
    rest = Track.of([(0, 1, 36, 80), *((at, 1, 42, 80) for at in range(5))], is_drum=True)
    new = Track.of([(100, 1, pitch, 80) for pitch in (36, 42, 49)], is_drum=True)
    assert shared(kick, rest, new=new) == [[36], [42, 49]]


def test_notes_of_a_track_that_may_not_play_are_left_out():
    parts = Parts.of(Score(12, (HIGH, LOW)), None, {1})
    assert shared(HIGH, LOW, parts=parts) == [[45, 59]]
    kick = Track.of([(0, 1, 36, 80)], is_drum=True)
    hat = replace(kick, notes=Track.of([(0, 1, 42, 80)]).notes, chunk=1)
    new = Track.of([(100, 1, pitch, 80) for pitch in (36, 42)], is_drum=True)
    parts = Parts.of(Score(12, (kick, hat)), None, {1})
    assert shared(kick, hat, new=new, parts=parts) == [[42]]
    # an instrument plays everything if the pianos may not play
    flute = Track.of([(0, 10, 76, 80)], program=73)
    parts = Parts.of(Score(12, (flute, LOW)), None, {0})
    assert shared(flute, LOW, parts=parts) == [[45, 59, 61, 75]]
    with pytest.raises(MidiError, match="there is no track 7, expected 0 to 1"):
        Parts.of(Score(12, (HIGH, LOW)), {0, 7}, None)


def test_tracks_given_as_drums_replace_those_of_the_file():
    score = Score(12, (replace(HIGH, chunk=0), replace(LOW, is_drum=True, channel=9, chunk=1)))
    assert mark_drums(score, None, "a.mid") is score
    marked = mark_drums(score, "1", "a.mid")
    assert [track.is_drum for track in marked.tracks] == [True, False]
    with pytest.raises(MidiError, match=r"a.mid: drums: there is no track 4, expected 1 to 2"):
        mark_drums(score, "1,4", "a.mid")
