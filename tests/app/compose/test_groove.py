"""Music of several instruments: it continues in the tracks and channels of the upload."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import mido
import numpy as np
import pytest
import torch

from app.compose.continuation import Result, continue_prompt, generate_piece
from app.compose.models import MusicModel
from app.compose.options import MusicOptions
from app.compose.piece import Opening
from app.compose.prompt import read_prompt
from relpe.decoding.choose import choose_steps
from relpe.models.decoder import DecoderConfig
from tokenization.constraints.distance import Distance
from tokenization.errors import MidiError
from tokenization.midi import read_midi, write_midi
from tokenization.remi.multitrack import MultitrackRemi
from tokenization.remi.vocabulary import BAR, MULTITRACK_FAMILIES, PROGRAM_ORDER
from tokenization.score import Score, Tempo, TimeSignature, Track

if TYPE_CHECKING:
    from app.compose.piece import Piece

KICK, SNARE, HAT = 36, 38, 42


@pytest.fixture(scope="module")
def groove_model() -> MusicModel:
    torch.manual_seed(0)
    config = DecoderConfig(vocabulary_size=812, width=16, num_layers=2, num_heads=2, hidden=24)
    decoder = config.build().eval().requires_grad_(requires_grad=False)
    steps = choose_steps(decoder, "torch")
    return MusicModel("band", decoder, MultitrackRemi(), torch.device("cpu"), steps)


def band(metre: tuple[int, int] = (4, 4), bars: int = 3, *, drums: bool = True) -> Score:
    """Drums, a bass, two tracks of one piano and strings, `bars` bars at 100 bpm."""
    length = 480 * 4 * metre[0] // metre[1]
    starts = [bar * length for bar in range(bars)]
    beats = [start + beat for start in starts for beat in range(0, length, 240)]
    tracks = [
        Track.of(
            [(at, 200, 76, 70) for at in starts],
            program=0,
        ),
        Track.of([(at, 200, 40, 70) for at in starts], program=0),
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


def proceed(model: MusicModel, data: bytes, **options: Any) -> Result:
    prompt = read_prompt(data, tokenizer=model.tokenizer)
    *_, result = continue_prompt(model, prompt, MusicOptions(**options))
    return result  # type: ignore[return-value]


def players(score: Score) -> set[tuple[object, ...]]:
    """Chunk, channel and instrument of all tracks with notes."""
    return {(t.chunk, t.channel, t.program, t.is_drum) for t in score.tracks if len(t)}


@pytest.mark.parametrize("drums", [True, False])
@pytest.mark.parametrize("one_track", [False, True])
@pytest.mark.parametrize("metre", [(4, 4), (3, 4), (6, 8)])
def test_a_band_continues_in_its_own_tracks_and_channels(
    groove_model: MusicModel, metre: tuple[int, int], one_track: bool, drums: bool
) -> None:
    data = write_midi(band(metre, drums=drums))
    if one_track:
        data = in_one_track(data)
    upload = read_midi(data)
    result = proceed(groove_model, data, bars=2, seed=2)
    (piece,) = result.pieces
    bar = 480 * 4 * metre[0] // metre[1]
    assert result.bars == 2
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


def new_notes(piece: Piece, *, is_drum: bool) -> list[Track]:
    return [track for track in piece.new.tracks if len(track) and track.is_drum == is_drum]


def test_drums_alone_continue_without_other_instruments(groove_model: MusicModel) -> None:
    (track,) = (track for track in band().tracks if track.is_drum)
    data = write_midi(Score(480, (track,), (Tempo(0, 90.0),)))
    (piece,) = proceed(groove_model, data, bars=2, seed=1).pieces
    assert piece.notes
    assert not new_notes(piece, is_drum=False)
    with pytest.raises(MidiError, match="drums only"):
        read_prompt(data)


def test_each_drum_continues_in_the_track_that_strikes_it(groove_model: MusicModel) -> None:
    kick = Track.of([(bar * 1920, 10, KICK, 90) for bar in range(3)], is_drum=True)
    rest = Track.of([(i * 240, 10, (SNARE, HAT)[i % 2], 80) for i in range(24)], is_drum=True)
    data = write_midi(Score(480, (kick, rest), (Tempo(0, 90.0),)))
    chunks = [track.chunk for track in read_midi(data).tracks]
    (piece,) = proceed(groove_model, data, bars=8, seed=1).pieces
    kicks = {track.chunk for track in piece.new.tracks if KICK in track.notes[:, 2]}
    others = [track for track in piece.new.tracks if len(track) and track.chunk != chunks[0]]
    assert kicks <= {chunks[0]}
    assert others
    assert {track.chunk for track in others} == {chunks[1]}


def test_two_tracks_of_one_instrument_stay_two(groove_model: MusicModel) -> None:
    data = write_midi(band(drums=False))
    pieces = proceed(groove_model, data, bars=3, seed=2, variations=4).pieces
    new = [track for piece in pieces for track in piece.new.tracks if len(track)]
    assert len({track.chunk for track in new if track.program == 0}) == 2


def test_a_note_that_still_rings_is_not_struck_again_by_its_track(groove_model: MusicModel) -> None:
    ringing = Track.of([(0, 1920 + 400, pitch, 80) for pitch in range(128)], program=48)
    other = Track.of([(0, 400, 60, 80)], program=0)
    data = write_midi(Score(480, (ringing, other), (Tempo(0, 90.0),)))
    prompt = read_prompt(data, tokenizer=groove_model.tokenizer)
    assert prompt.splice_ticks == 1920
    for seed in range(3):
        *_, result = continue_prompt(groove_model, prompt, MusicOptions(bars=1, seed=seed))
        for track in result.pieces[0].new.tracks:  # type: ignore[union-attr]
            assert track.program == 0 or not (track.notes[:, 0] < 1920 + 400).any()


@pytest.mark.parametrize("played", [{0}, {2, 4}])
def test_a_track_plays_the_same_whether_or_not_the_others_may_play(
    groove_model: MusicModel, played: set[int]
) -> None:
    data, options = write_midi(band(bars=4)), MusicOptions(bars=2, seed=4)
    upload = read_midi(data)
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


def test_a_track_that_is_not_read_but_may_play_joins_at_once(groove_model: MusicModel) -> None:
    data = write_midi(band(bars=4))
    strings = MULTITRACK_FAMILIES.program + PROGRAM_ORDER.index(48)
    prompt = read_prompt(data, tokenizer=groove_model.tokenizer, heard={4}, played={3})
    bias = Opening.after(groove_model, prompt, MusicOptions(recall=0)).rule.bias
    assert bias is not None
    assert np.flatnonzero(bias).tolist() == [BAR, strings]
    assert bias[BAR] < 0 < bias[strings]


def test_a_piece_from_nothing_names_its_instruments(groove_model: MusicModel) -> None:
    *_, result = generate_piece(groove_model, MusicOptions(bars=2, seed=1))
    (piece,) = result.pieces  # type: ignore[union-attr]
    assert result.bars == 2  # type: ignore[union-attr]
    names = {track.name for track in read_midi(piece.midi).tracks if len(track)}
    assert len(names) > 3
    assert all(names)


def test_same_seed_same_bytes(groove_model: MusicModel) -> None:
    data = write_midi(band())
    first, again = (proceed(groove_model, data, bars=2, seed=5, variations=2) for _ in range(2))
    assert [piece.midi for piece in first.pieces] == [piece.midi for piece in again.pieces]


def test_presence_makes_an_instrument_that_rests_too_long_likelier(groove_model):
    score = band(bars=6)
    strings = score.tracks[3]
    resting = strings.with_tables(notes=strings.notes[:1])
    data = write_midi(score.with_tracks([*score.tracks[:3], resting]))
    prompt = read_prompt(data, tokenizer=groove_model.tokenizer)
    program = MULTITRACK_FAMILIES.program + PROGRAM_ORDER.index(48)

    def bias(**chosen: Any) -> np.ndarray:
        options = MusicOptions(recall=0, **chosen)
        found = Opening.after(groove_model, prompt, options).rule.bias
        return np.zeros(812) if found is None else found

    assert not bias(presence=0).any()
    whole = bias()
    assert np.flatnonzero(whole).tolist() == [BAR, program]
    assert (
        whole[BAR] < 0 < whole[program]
    )  # ending a bar before an instrument plays is also less likely
    np.testing.assert_array_equal(bias(presence=0.5), whole / 2)
    assert bias(key="C")[program] == whole[program] == bias(repetition=1)[program]
    listening = Opening.after(groove_model, prompt, MusicOptions(presence=0)).rule.bias
    assert listening is not None  # the bias of recall: how the bars of the prompt began
    assert not listening[program]


def test_new_bars_of_a_band_are_no_copies_where_distance_asks_for_it(groove_model):
    prompt = read_prompt(write_midi(band()), tokenizer=groove_model.tokenizer)
    for distance in (0.0, 0.5, 1.0):
        options = MusicOptions(bars=4, seed=1, distance=distance)
        *_, result = continue_prompt(groove_model, prompt, options)
        assert result.bars == 4
    biases = Opening.after(groove_model, prompt, MusicOptions(distance=0.5)).rule.biases
    [found] = [bias for bias in biases if isinstance(bias, Distance)]
    assert (found.share, found.sizes.tolist()) == (0.5, [12])  # three bars, which are the same
