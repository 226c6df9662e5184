"""Music of several instruments, and models whose vocabulary has plans."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import mido
import numpy as np
import pytest

from app.compose.continuation import Result, continue_prompt, generate_piece
from app.compose.models import MusicModel
from app.compose.options import MusicOptions
from app.compose.piece import Opening
from app.compose.prompt.prompt import read_prompt
from tests.support.bands import band, model_of, sampled
from tests.support.scores import two_hands
from tokenization.analysis.plan import analyse
from tokenization.constraints.distance import Distance
from tokenization.errors import MidiError
from tokenization.midi import read_midi, write_midi
from tokenization.plan import Key
from tokenization.remi.multitrack import MultitrackRemi
from tokenization.remi.remi import PianoRemi, Remi
from tokenization.remi.vocabulary import (
    BAR,
    BOS,
    EOS,
    MULTITRACK_FAMILIES,
    POSITION,
    PROGRAM_ORDER,
    TIME_SIGNATURE,
)
from tokenization.score import Score, Tempo, TimeSignature, Track

if TYPE_CHECKING:
    from app.compose.piece import Piece

F = MULTITRACK_FAMILIES
STEERED = {"key": "C", "density": 5.0, "repetition": 1.0, "ending": "cadence"}
KICK, SNARE, HAT = 36, 38, 42
STRINGS = MULTITRACK_FAMILIES.program + PROGRAM_ORDER.index(48)


@pytest.fixture(scope="module")
def model():
    return model_of(MultitrackRemi())


@pytest.fixture(scope="module")
def piano_model():
    return model_of(PianoRemi())


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


def opening_of(model: MusicModel, score: Score, **options: Any) -> Opening:
    prompt = read_prompt(write_midi(score), tokenizer=model.tokenizer)
    return Opening.after(model, prompt, MusicOptions(**options))


def players(score: Score) -> set[tuple[object, ...]]:
    """Chunk, channel and instrument of all tracks with notes."""
    return {(t.chunk, t.channel, t.program, t.is_drum) for t in score.tracks if len(t)}


@pytest.mark.parametrize(
    ("metre", "one_track", "drums"), [((6, 8), True, True), ((7, 16), False, False)]
)
def test_a_band_continues_in_its_own_tracks_and_channels(model, metre, one_track, drums):
    data = write_midi(big_band(metre, drums=drums))
    if one_track:
        data = in_one_track(data)
    upload = read_midi(data)
    (piece,) = proceed(model, data, bars=2, seed=2)
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


def test_drums_alone_continue_each_in_the_track_that_strikes_it(model):
    kick = Track.of([(bar * 1920, 10, KICK, 90) for bar in range(3)], is_drum=True)
    rest = Track.of([(i * 240, 10, (SNARE, HAT)[i % 2], 80) for i in range(24)], is_drum=True)
    data = write_midi(Score(480, (kick, rest), (Tempo(0, 90.0),)))
    chunks = [track.chunk for track in read_midi(data).tracks]
    (piece,) = proceed(model, data, bars=4, seed=1)
    assert all(track.is_drum for track in piece.new.tracks if len(track))
    kicks = {track.chunk for track in piece.new.tracks if KICK in track.notes[:, 2]}
    others = {track.chunk for track in piece.new.tracks if len(track)} - {chunks[0]}
    assert kicks <= {chunks[0]}
    assert others == {chunks[1]}
    with pytest.raises(MidiError, match="drums only"):
        read_prompt(data)


def test_two_tracks_of_one_instrument_stay_two(model):
    data = write_midi(big_band(drums=False))
    pieces = proceed(model, data, bars=3, seed=2, variations=4)
    new = [track for piece in pieces for track in piece.new.tracks if len(track)]
    assert len({track.chunk for track in new if track.program == 0}) == 2
    # a note that still rings is not struck again by its track
    ringing = Track.of([(0, 1920 + 400, pitch, 80) for pitch in range(128)], program=48)
    other = Track.of([(0, 400, 60, 80)], program=0)
    data = write_midi(Score(480, (ringing, other), (Tempo(0, 90.0),)))
    for piece in proceed(model, data, bars=1, seed=0, variations=3):
        for track in piece.new.tracks:
            assert track.program == 0 or not (track.notes[:, 0] < 1920 + 400).any()


def test_tracks_play_the_same_whether_or_not_the_others_may_play(model):
    data, options = write_midi(big_band(bars=4)), MusicOptions(bars=2, seed=4)
    upload, played = read_midi(data), {2, 4}
    made = []
    for chosen in (None, played):
        prompt = read_prompt(data, tokenizer=model.tokenizer, played=chosen)
        *_, result = continue_prompt(model, prompt, options)
        assert isinstance(result, Result)
        made.append({t.chunk: t.notes.tolist() for t in result.pieces[0].new.tracks if len(t)})
    chunks = {upload.tracks[number].chunk for number in played}
    assert made[1] == {chunk: notes for chunk, notes in made[0].items() if chunk in chunks}
    assert made[1]
    assert len(made[0]) > len(made[1])


def test_a_piece_from_nothing_names_its_instruments(model):
    *_, result = generate_piece(model, MusicOptions(bars=2, seed=1))
    (piece,) = result.pieces  # type: ignore[union-attr]
    assert piece.bars == 2
    names = {track.name for track in read_midi(piece.midi).tracks if len(track)}
    assert len(names) > 3
    assert all(names)


def test_presence_makes_an_instrument_that_rests_too_long_or_only_joins_likelier(model):
    score = big_band(bars=6)
    strings = score.tracks[3]
    resting = strings.with_tables(notes=strings.notes[:1])
    data = write_midi(score.with_tracks([*score.tracks[:3], resting]))
    prompt = read_prompt(data, tokenizer=model.tokenizer)

    def bias(prompt=prompt, **chosen):
        options = MusicOptions(recall=0, **chosen)
        rule_bias = Opening.after(model, prompt, options).rule.bias
        return np.zeros(812) if rule_bias is None else rule_bias

    assert not bias(presence=0).any()
    whole = bias()
    assert np.flatnonzero(whole).tolist() == [BAR, STRINGS]
    # ending a bar before an instrument plays is also less likely
    assert whole[BAR] < 0 < whole[STRINGS]
    np.testing.assert_array_equal(bias(presence=0.5), whole / 2)
    assert bias(key="C")[STRINGS] == whole[STRINGS] == bias(repetition=1)[STRINGS]
    recalled = Opening.after(model, prompt, MusicOptions(presence=0)).rule.bias
    assert recalled is not None  # how the bars of the prompt began
    assert not recalled[STRINGS]
    # a track that is not read, but may play
    data = write_midi(big_band(bars=4))
    joining = bias(read_prompt(data, tokenizer=model.tokenizer, heard={4}, played={3}))
    assert np.flatnonzero(joining).tolist() == [BAR, STRINGS]
    assert joining[BAR] < 0 < joining[STRINGS]


def test_new_bars_of_a_band_are_no_copies_where_distance_asks_for_it(model):
    prompt = read_prompt(write_midi(big_band()), tokenizer=model.tokenizer)
    biases = Opening.after(model, prompt, MusicOptions(distance=0.5)).rule.biases
    [distance] = [bias for bias in biases if isinstance(bias, Distance)]
    assert (distance.share, distance.sizes.tolist()) == (0.5, [12])  # three bars, all the same


# ---- plans


def test_the_prompt_has_its_plan_and_no_end(piano_model):
    opening = opening_of(piano_model, two_hands(), bars=2)
    tokenizer = piano_model.tokenizer
    assert isinstance(tokenizer, Remi)
    document = tokenizer.decode_document(opening.context[:-1])
    plan = analyse(two_hands())
    assert document.plan == plan
    assert document.header == (None, ())
    assert (document.begins, document.ends, document.num_bars) == (True, False, 4)
    assert opening.context[-1] == BAR


def test_each_new_bar_has_a_plan_of_its_own(model):
    tokenizer = model.tokenizer
    opening = opening_of(model, band(), bars=3, prompt_bars=2)
    ids = np.array(sampled(opening))
    tokenizer.grammar().resume(np.append(opening.context, ids[:-1]))
    assert np.count_nonzero((ids >= F.return_) & (ids < F.chord)) == 3
    assert np.count_nonzero(ids == BAR) == 3  # the last one ends the music
    assert not np.isin(ids, [F.later, F.write, F.last, EOS]).any()
    assert not (ids >= F.style).any()


def test_tempos_are_in_the_head_of_the_first_new_bar_and_not_scaled(model):
    score = band()
    score = replace(score, tempos=(Tempo(0, 100.0), Tempo(3 * 1920, 140.0)), end_ticks=3 * 1920)
    ids = opening_of(model, score, bars=1).context.tolist()
    names = [model.tokenizer.vocabulary.names[token] for token in ids[-2:]]
    assert names == ["Bar", "Tempo_140.0"]
    for bpm in (20.0, 400.0):
        prompt = read_prompt(write_midi(band(bpm=bpm)), tokenizer=model.tokenizer)
        assert prompt.timing.counted is prompt.timing.file
        assert not any("halved or doubled" in notice for notice in prompt.facts.notices)
        (piece,) = proceed(model, write_midi(band(bpm=bpm)), bars=1, seed=1)
        assert piece.seconds == pytest.approx(4 * 60 / bpm, rel=1e-3)


def test_a_bias_towards_notes_does_not_shorten_the_plan(model):
    opening = opening_of(model, band(), bars=2)
    rule = opening.rule.advance(F.return_)
    for token in (F.chord, F.bass + 4):
        bias = rule.bias
        assert bias is not None
        of_plan = np.flatnonzero(rule.allowed)
        notes = of_plan[of_plan < F.return_]
        assert len(notes)
        np.testing.assert_array_equal(bias[of_plan[of_plan >= F.return_]], bias[notes].max())
        rule = rule.advance(token)


def test_a_natural_end_has_a_last_bar(model):
    opening = opening_of(model, band(), bars=3, ending="natural")
    ids = sampled(opening)
    assert ids[-1] == EOS
    assert ids.count(F.last) == 1
    assert ids.count(BAR) == 2
    assert BAR not in ids[ids.index(F.last) :]
    model.tokenizer.grammar().resume(np.append(opening.context, ids))
    (piece,) = proceed(model, write_midi(band()), bars=2, seed=1, ending="natural")
    assert (piece.bars, piece.stopped) == (2, False)
    assert piece.new.end_ticks == 5 * 1920


def test_the_options_work_together_after_a_prompt_and_from_nothing(model):
    for options in ({"seconds": 5.0}, STEERED, {"ending": "natural"}):
        music = MusicOptions(bars=3, seed=2, **options)  # type: ignore[arg-type]
        first, again = (list(generate_piece(model, music))[-1].pieces[0] for _ in range(2))  # type: ignore[union-attr]
        assert first.midi == again.midi
        assert first.notes
        assert first.bars == 3 or "seconds" in options
    plain, first, again = (
        proceed(model, write_midi(band()), bars=2, seed=1, **options)[0]
        for options in ({}, STEERED, STEERED)
    )
    assert plain.midi != first.midi == again.midi
    assert first.notes


def test_a_piece_with_a_form_keeps_its_metre(model):
    formed = Opening.of_nothing(model, MusicOptions(bars=4, form="A2 B2"))
    plain, planned = Opening.of_nothing(model, MusicOptions(bars=4)).rule, formed.rule
    metres = slice(TIME_SIGNATURE, POSITION)
    ids = sampled(formed)
    first = next(place for place, token in enumerate(ids) if TIME_SIGNATURE <= token < POSITION)
    for token in ids[: ids.index(BAR, first) + 1]:
        planned = planned.advance(token)
    assert not planned.allowed[metres].any()
    assert not any(TIME_SIGNATURE <= token < POSITION for token in ids[first + 1 :])
    plain = plain.advance(BAR).advance(ids[first])
    while not plain.allowed[BAR]:
        plain = plain.advance(int(np.flatnonzero(plain.allowed)[0]))
    assert plain.advance(BAR).allowed[metres].any()


def test_the_key_of_a_piece_from_nothing_is_in_its_header(piano_model):
    tokenizer = piano_model.tokenizer
    assert isinstance(tokenizer, Remi)
    opening = Opening.of_nothing(piano_model, MusicOptions(bars=2, key="F#m"))
    ids = sampled(opening)
    document = tokenizer.decode_document([*opening.context.tolist(), *ids[:-1]])
    assert document.plan is not None
    assert document.plan.key == Key(6, minor=True)
    assert document.selection is None
    # a scale that is neither major nor minor is a bias alone
    dorian = Opening.of_nothing(piano_model, MusicOptions(key="D dorian"))
    assert dorian.context.tolist() == [BOS]
