"""Music of several instruments: it continues in the tracks and channels of the upload."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import mido
import numpy as np
import pytest

from app.compose.continuation import Result, continue_prompt, generate_piece
from app.compose.models import MusicModel
from app.compose.options import MusicOptions
from app.compose.piece import Opening
from app.compose.prompt import read_prompt
from tests.support.bands import model_of
from tokenization.constraints.distance import Distance
from tokenization.errors import MidiError
from tokenization.midi import read_midi, write_midi
from tokenization.remi.multitrack import MultitrackRemi
from tokenization.remi.vocabulary import BAR, MULTITRACK_FAMILIES, PROGRAM_ORDER
from tokenization.score import Score, Tempo, TimeSignature, Track

if TYPE_CHECKING:
    from app.compose.piece import Piece

KICK, SNARE, HAT = 36, 38, 42
STRINGS = MULTITRACK_FAMILIES.program + PROGRAM_ORDER.index(48)


@pytest.fixture(scope="module")
def groove_model():
    return model_of(MultitrackRemi())


def big_band(metre: tuple[int, int] = (4, 4), bars: int = 3, *, drums: bool = True) -> Score:
    """Drums, a bass, two tracks of one piano and strings, `bars` bars at 100 bpm."""
    length = 480 * 4 * metre[0] // metre[1]
    starts = [bar * length for bar in range(bars)]
    beats = [start + beat for start in starts for beat in range(0, length, 240)]
    tracks = [
        Track.of([(at, 200, 76, 70) for at in starts]),
        Track.of([(at, 200, 40, 70) for at in starts]),
        Track.of([(at, 200, 28, 90) for at in starts], program=33),
        Track.of([(at, 400, 67, 50) for at in starts], program=48),
    ]
    if drums:
        tracks.append(Track.of([(at, 10, HAT, 80) for at in beats], is_drum=True))
    return Score(480, tuple(tracks), (Tempo(0, 100.0),), (TimeSignature(0, *metre),), bars * length)


def in_one_track(data: bytes) -> bytes:
    """The same music as a file of format 0."""
    file = mido.MidiFile(file=io.BytesIO(data))
    merged = mido.MidiFile(type=0, ticks_per_beat=file.ticks_per_beat)
    merged.tracks.append(mido.merge_tracks(file.tracks))
    out = io.BytesIO()
    merged.save(file=out)
    return out.getvalue()


def proceed(model: MusicModel, data: bytes, **options: Any) -> tuple[Piece, ...]:
    prompt = read_prompt(data, tokenizer=model.tokenizer)
    *_, result = continue_prompt(model, prompt, MusicOptions(**options))
    assert isinstance(result, Result)
    return result.pieces


def players(score: Score) -> set[tuple[object, ...]]:
    """Chunk, channel and instrument of all tracks with notes."""
    return {(t.chunk, t.channel, t.program, t.is_drum) for t in score.tracks if len(t)}


@pytest.mark.parametrize(
    ("metre", "one_track", "drums"), [((4, 4), True, True), ((6, 8), False, False)]
)
def test_a_band_continues_in_its_own_tracks_and_channels(groove_model, metre, one_track, drums):
    data = write_midi(big_band(metre, drums=drums))
    if one_track:
        data = in_one_track(data)
    upload = read_midi(data)
    (piece,) = proceed(groove_model, data, bars=2, seed=2)
    bar = 480 * 4 * metre[0] // metre[1]
    assert piece.bars == 2
    assert players(piece.new) <= players(upload) == players(piece.score)
    assert piece.score.time_signatures == upload.time_signatures
    assert piece.score.tempos == upload.tempos
    onsets = np.concatenate([track.notes[:, 0] for track in piece.new.tracks])
    assert 3 * bar <= onsets.min() <= onsets.max() < 5 * bar
    for before, after in zip(upload.tracks, piece.score.tracks, strict=True):
        np.testing.assert_array_equal(after.notes[after.notes[:, 0] < 3 * bar], before.notes)
    assert any(track.is_drum for track in piece.new.tracks) == drums
    alone = read_midi(piece.new_midi)
    assert alone.num_notes == piece.notes == piece.new.num_notes
    assert alone.end_ticks <= 2 * bar


def test_drums_alone_continue_each_in_the_track_that_strikes_it(groove_model):
    kick = Track.of([(bar * 1920, 10, KICK, 90) for bar in range(3)], is_drum=True)
    rest = Track.of([(i * 240, 10, (SNARE, HAT)[i % 2], 80) for i in range(24)], is_drum=True)
    data = write_midi(Score(480, (kick, rest), (Tempo(0, 90.0),)))
    chunks = [track.chunk for track in read_midi(data).tracks]
    (piece,) = proceed(groove_model, data, bars=4, seed=1)
    assert all(track.is_drum for track in piece.new.tracks if len(track))
    kicks = {track.chunk for track in piece.new.tracks if KICK in track.notes[:, 2]}
    others = {track.chunk for track in piece.new.tracks if len(track)} - {chunks[0]}
    assert kicks <= {chunks[0]}
    assert others == {chunks[1]}
    with pytest.raises(MidiError, match="drums only"):
        read_prompt(data)


def test_two_tracks_of_one_instrument_stay_two(groove_model):
    data = write_midi(big_band(drums=False))
    pieces = proceed(groove_model, data, bars=3, seed=2, variations=4)
    new = [track for piece in pieces for track in piece.new.tracks if len(track)]
    assert len({track.chunk for track in new if track.program == 0}) == 2


def test_a_note_that_still_rings_is_not_struck_again_by_its_track(groove_model):
    ringing = Track.of([(0, 1920 + 400, pitch, 80) for pitch in range(128)], program=48)
    other = Track.of([(0, 400, 60, 80)], program=0)
    data = write_midi(Score(480, (ringing, other), (Tempo(0, 90.0),)))
    for piece in proceed(groove_model, data, bars=1, seed=0, variations=3):
        for track in piece.new.tracks:
            assert track.program == 0 or not (track.notes[:, 0] < 1920 + 400).any()


def test_tracks_play_the_same_whether_or_not_the_others_may_play(groove_model):
    data, options = write_midi(big_band(bars=4)), MusicOptions(bars=2, seed=4)
    upload, played = read_midi(data), {2, 4}
    made = []
    for chosen in (None, played):
        prompt = read_prompt(data, tokenizer=groove_model.tokenizer, played=chosen)
        *_, result = continue_prompt(groove_model, prompt, options)
        assert isinstance(result, Result)
        made.append({t.chunk: t.notes.tolist() for t in result.pieces[0].new.tracks if len(t)})
    chunks = {upload.tracks[number].chunk for number in played}
    assert made[1] == {chunk: notes for chunk, notes in made[0].items() if chunk in chunks}
    assert made[1]
    assert len(made[0]) > len(made[1])


def test_a_piece_from_nothing_names_its_instruments(groove_model):
    *_, result = generate_piece(groove_model, MusicOptions(bars=2, seed=1))
    (piece,) = result.pieces  # type: ignore[union-attr]
    assert piece.bars == 2
    names = {track.name for track in read_midi(piece.midi).tracks if len(track)}
    assert len(names) > 3
    assert all(names)


def test_presence_makes_an_instrument_that_rests_too_long_or_only_joins_likelier(groove_model):
    score = big_band(bars=6)
    strings = score.tracks[3]
    resting = strings.with_tables(notes=strings.notes[:1])
    data = write_midi(score.with_tracks([*score.tracks[:3], resting]))
    prompt = read_prompt(data, tokenizer=groove_model.tokenizer)

    def bias(prompt=prompt, **chosen):
        options = MusicOptions(recall=0, **chosen)
        found = Opening.after(groove_model, prompt, options).rule.bias
        return np.zeros(812) if found is None else found

    assert not bias(presence=0).any()
    whole = bias()
    assert np.flatnonzero(whole).tolist() == [BAR, STRINGS]
    # ending a bar before an instrument plays is also less likely
    assert whole[BAR] < 0 < whole[STRINGS]
    np.testing.assert_array_equal(bias(presence=0.5), whole / 2)
    assert bias(key="C")[STRINGS] == whole[STRINGS] == bias(repetition=1)[STRINGS]
    recalled = Opening.after(groove_model, prompt, MusicOptions(presence=0)).rule.bias
    assert recalled is not None  # how the bars of the prompt began
    assert not recalled[STRINGS]
    # a track that is not read, but may play
    data = write_midi(big_band(bars=4))
    joining = bias(read_prompt(data, tokenizer=groove_model.tokenizer, heard={4}, played={3}))
    assert np.flatnonzero(joining).tolist() == [BAR, STRINGS]
    assert joining[BAR] < 0 < joining[STRINGS]


def test_new_bars_of_a_band_are_no_copies_where_distance_asks_for_it(groove_model):
    prompt = read_prompt(write_midi(big_band()), tokenizer=groove_model.tokenizer)
    biases = Opening.after(groove_model, prompt, MusicOptions(distance=0.5)).rule.biases
    [distance] = [bias for bias in biases if isinstance(bias, Distance)]
    assert (distance.share, distance.sizes.tolist()) == (0.5, [12])  # three bars, all the same
    *_, result = continue_prompt(groove_model, prompt, MusicOptions(bars=2, seed=1, distance=1.0))
    assert isinstance(result, Result)
    assert result.bars == 2
