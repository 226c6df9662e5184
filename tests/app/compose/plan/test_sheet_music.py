from itertools import pairwise

import pytest

from app.compose.plan.sheet_music import SheetMusicError, is_for_piano, sheet_music
from tests.support.scores import two_hands
from tokenization.midi import read_midi
from tokenization.midi.musicxml import as_midi
from tokenization.score import Score, Tempo, Track


def test_a_recording_is_written_in_its_estimated_beats():
    # a metronome of 100 beats a minute, in a file that says 120
    rows = [(576 * beat + (6, -10, 8)[beat % 3] + 19, 400, 60 + beat % 4, 80) for beat in range(64)]
    played = Score(480, (Track.of(rows),), (Tempo(0, 120.0),))
    found = read_midi(as_midi(sheet_music(played), "piece"))
    assert len(found.tempos) == 1
    onsets = sorted(onset for track in found.tracks for onset in track.notes[:, 0].tolist())
    assert len({after - before for before, after in pairwise(onsets)}) == 1  # equal note values


def test_pieces_of_other_instruments_are_refused():
    violin, drums = Track.of([(0, 1, 60, 80)], 40), Track.of([(0, 1, 36, 80)], is_drum=True)
    for tracks, problem in (((violin,), "Violin"), ((drums,), "Drums"), ((), "0 notes")):
        score = Score(480, tracks)
        assert not is_for_piano(score)
        with pytest.raises(SheetMusicError, match=f"found {problem}"):
            sheet_music(score)
    hands = two_hands()  # silent tracks are no obstacle
    assert is_for_piano(hands.with_tracks([*hands.tracks, Track.of([], 40)]))
