"""Bars and tracks of a piece that are written again, and new tracks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from app.compose.continuation import Variations, continue_prompt, fill_midi
from app.compose.engine import Engine
from app.compose.fill.passage import DRUMS, Passage
from app.compose.models import MusicModel
from app.compose.options import MusicOptions
from app.compose.piece import Opening
from app.compose.prompt import prompt as prompt_module
from app.compose.prompt.prompt import Prompt, passage_options, read_prompt
from tests.support.bands import a_track, band, model_of, sampled
from tests.support.scores import performance, two_hands
from tokenization.analysis.chord_symbols import chord_symbol
from tokenization.document import Selection
from tokenization.errors import MidiError, TokenizerError
from tokenization.midi import read_midi, write_midi
from tokenization.remi.grammar import RemiGrammar
from tokenization.remi.multitrack import MultitrackRemi
from tokenization.remi.remi import PianoRemi, Remi
from tokenization.remi.vocabulary import BAR, MULTITRACK_FAMILIES
from tokenization.score import Score, Tempo, TimeSignature, Track
from tokenization.tokenizer import FixedBar

F = MULTITRACK_FAMILIES


@pytest.fixture(scope="module")
def band_model():
    return model_of(MultitrackRemi())


@pytest.fixture(scope="module")
def piano_model():
    return model_of(PianoRemi())


def opening_of(
    model: MusicModel, score: Score, passage: Passage, **options: Any
) -> tuple[Opening, Prompt]:
    prompt = read_prompt(write_midi(score), tokenizer=model.tokenizer, passage=passage)
    music = passage_options(MusicOptions(**options), passage, prompt)
    return Opening.after(model, prompt, music), prompt


def rows(track: Track) -> list[tuple[int, ...]]:
    return [tuple(row) for row in track.notes.tolist()]


def kept(track: Track, start: int, stop: int) -> list[tuple[int, ...]]:
    return [row for row in rows(track) if not start <= row[0] < stop]


# ---- what is written


def fixed_bars(opening: Opening) -> list[FixedBar]:
    """The bars whose plans are given to the model."""
    grammar = opening.rule.grammar
    assert isinstance(grammar, RemiGrammar)
    return list(grammar.rules.bars.values())


def symbols(bar: FixedBar) -> list[str]:
    return [chord_symbol(planned.chord) for planned in bar.chords or ()]


def test_the_bars_keep_the_chords_to_which_the_replaced_track_belongs(band_model):
    starts = [bar * 1920 for bar in range(4)]
    chords = Track.of([(at, 1900, pitch, 70) for at in starts for pitch in (60, 64, 67)])
    bass = Track.of([(at + half, 900, 33, 90) for at in starts for half in (0, 960)], program=33)
    drums = Track.of([(at, 10, 42, 80) for at in starts], is_drum=True)
    score = Score(480, (chords, bass, drums), (Tempo(0, 100),), (TimeSignature(0, 4, 4),), 7680)
    # the bass is written again, or rests while the drums are
    for tracks, rests, expected in (({1}, (), "Am7"), ({2}, (1,), "C")):
        passage = Passage(first_bar=2, last_bar=3, tracks=frozenset(tracks), rests=frozenset(rests))
        opening, _ = opening_of(band_model, score, passage)
        assert [symbols(bar) for bar in fixed_bars(opening)] == [[expected]] * 2


def test_bars_return_to_bars_with_their_chords_and_not_note_for_note(band_model):
    starts = [bar * 1920 for bar in range(5)]
    chords = Track.of([(at, 1900, pitch, 70) for at in starts for pitch in (57, 60, 64)])
    roots = [(at, 1900, (33, 29)[bar % 2], 90) for bar, at in enumerate(starts)]
    tracks = chords, Track.of(roots, program=33)
    score = Score(480, tracks, (Tempo(0, 100),), (TimeSignature(0, 4, 4),), 9600)
    passage = Passage(first_bar=1, last_bar=5, tracks=frozenset({1}))
    opening, _ = opening_of(band_model, score, passage)
    fixed = fixed_bars(opening)
    assert [symbols(bar) for bar in fixed] == [["Am"], ["Fmaj7"], ["Am"], ["Fmaj7"], ["Am"]]
    assert [bar.sources for bar in fixed[2:]] == [(2,)] * 3
    assert not any(bar.exact for bar in fixed)


def test_only_the_passage_changes(band_model):
    for metre, tracks in (((7, 16), None), ((13, 4), frozenset({0, 2}))):
        data = write_midi(band(metre, bars=6))
        passage = Passage(first_bar=3, last_bar=4, tracks=tracks)
        asked = MusicOptions(seed=1, variations=2, key="C", density=5.0, repetition=1.0)
        result = fill_midi(band_model, data, passage, asked)
        assert fill_midi(band_model, data, passage, asked).pieces[1].midi == result.pieces[1].midi
        length = 480 * 4 * metre[0] // metre[1]
        start, stop = 2 * length, 4 * length
        before = read_midi(data)
        for piece in result.pieces:
            after = read_midi(piece.midi)
            assert (piece.bars, piece.stopped) == (2, False)
            assert (after.tempos, after.time_signatures) == (before.tempos, before.time_signatures)
            assert len(after.tracks) == 3
            for number, (old, new) in enumerate(zip(before.tracks, after.tracks, strict=True)):
                if tracks is not None and number not in tracks:
                    assert old == new
                assert kept(old, start, stop) == kept(new, start, stop)
                written = [row for row in rows(new) if start <= row[0] < stop]
                assert all(row[0] + row[1] <= stop for row in written)
            assert piece.new.num_notes == piece.notes
            assert piece.notes or piece.seed == 2
        assert result.pieces[0].midi != result.pieces[1].midi


def test_a_new_track_is_added_and_the_others_keep_their_bytes(band_model):
    for last in (3, 5):
        passage = Passage(first_bar=2, last_bar=last, instrument=60)
        _, prompt = opening_of(band_model, band(), passage)
        is_told = any("the piece ends with bar 3" in notice for notice in prompt.facts.notices)
        assert is_told == (last == 5)
    data = write_midi(band(bars=4))
    (piece,) = fill_midi(band_model, data, Passage(instrument=33), MusicOptions(seed=1)).pieces
    assert piece.midi[14:].startswith(data[14:])  # all but the number of tracks
    new = read_midi(piece.midi).tracks[3]
    assert (new.program, new.is_drum, new.channel) == (33, False, 2)
    assert len(new) == piece.notes > 0
    piano = write_midi(two_hands(4))
    passage = Passage(first_bar=2, last_bar=3, instrument=DRUMS)
    (piece,) = fill_midi(band_model, piano, passage, MusicOptions(seed=2)).pieces
    *_, drums = read_midi(piece.midi).tracks
    assert (drums.is_drum, drums.channel, drums.name) == (True, 9, "Drums")
    assert 1920 <= drums.notes[:, 0].min() <= drums.notes[:, 0].max() < 3 * 1920


def test_the_last_bars_and_those_after_the_end_are_continued(quick_model):
    data = write_midi(two_hands(4))
    for first, last in ((5, 6), (3, 6)):
        passage = Passage(first_bar=first, last_bar=last)
        (piece,) = fill_midi(quick_model, data, passage, MusicOptions(seed=1)).pieces
        prompt = read_prompt(data, last_bar=first - 1)
        options = MusicOptions(seed=1, bars=last - first + 1)
        *_, result = continue_prompt(quick_model, prompt, options)
        (continued,) = result.pieces  # type: ignore[union-attr]
        assert (piece.midi == continued.midi) == (first == 5)  # the end of the old notes is kept
        whole = read_midi(piece.midi)
        for track, other in zip(whole.tracks, read_midi(continued.midi).tracks, strict=True):
            assert rows(track) == rows(other)


def test_a_recording_is_filled_in_its_estimated_bars(piano_model):
    data = write_midi(performance())
    passage = Passage(first_bar=4, last_bar=6)
    prompt = read_prompt(data, tokenizer=piano_model.tokenizer, passage=passage)
    assert prompt.facts.beats == "estimate"
    assert prompt.gap is not None
    *_, result = continue_prompt(
        piano_model, prompt, passage_options(MusicOptions(seed=1), passage, prompt)
    )
    (piece,) = result.pieces  # type: ignore[union-attr]
    edges = prompt.gap.start_tick, prompt.gap.stop_tick
    (old,), (new,) = read_midi(data).tracks, read_midi(piece.midi).tracks
    assert kept(old, *edges) == kept(new, *edges)
    assert len(kept(old, *edges)) < len(old)
    # the note on a downbeat that was played early belongs to the bar that it begins
    lines = prompt.timing.to_file(prompt.gap.bars.lines[[3, 6]]).tolist()
    assert all(0 < line - edge < 40 for line, edge in zip(lines, edges, strict=True))


def test_after_a_stop_bars_that_were_not_begun_keep_their_notes(band_model):
    opening, prompt = opening_of(band_model, band(bars=8), Passage(first_bar=2, last_bar=7), seed=1)
    variations, engine = Variations(opening), Engine(band_model)
    variations.start(engine)
    while variations.drafts[0].bars_begun < 3:
        engine.step()
    (piece,) = variations.result().pieces
    assert piece.stopped
    before, after = read_midi(prompt.data), read_midi(piece.midi)
    for old, new in zip(before.tracks, after.tracks, strict=True):
        assert kept(old, 1920, 4 * 1920) == kept(new, 1920, 4 * 1920)


# ---- what the model reads


def document_of(opening: Opening, ids: list[int]) -> Any:
    tokenizer = opening.model.tokenizer
    assert isinstance(tokenizer, Remi)
    return tokenizer.decode_document([*opening.context.tolist(), *ids])


def test_bars_are_infilled(piano_model):
    score = two_hands(8)
    opening, _ = opening_of(piano_model, score, Passage(first_bar=4, last_bar=6))
    ids = sampled(opening)
    piano_model.tokenizer.grammar().resume([*opening.context.tolist(), *ids])
    document = document_of(opening, ids)
    assert document.selection == Selection(3, 6)
    assert (document.begins, document.ends) == (True, True)
    assert ids.count(F.write) == 3
    whole = piano_model.tokenizer.decode(piano_model.tokenizer.encode(score).ids)
    for track, other in zip(document.score.tracks, whole.tracks, strict=True):
        starts = [[row[::2] for row in kept(one, 3 * 48, 6 * 48)] for one in (track, other)]
        assert starts[0] == starts[1]


def test_given_tracks_are_read_in_every_bar(band_model):
    passage = Passage(first_bar=2, last_bar=3, tracks=frozenset({1}))
    opening, _ = opening_of(band_model, band(bars=5), passage)
    document = document_of(opening, sampled(opening))
    (bass,) = band_model.tokenizer.track_ranks([a_track(program=33)])
    assert document.header.players == (bass,)
    coordinates = opening.request([0]).coordinates
    assert coordinates is not None
    places, _ = coordinates.read(opening.context)  # type: ignore[misc]
    assert sorted(set(places[:, 0].tolist())) == [-1, 0, 2, 3]  # from the gap on
    assert places[-1, :2].tolist() == [0, 0]
    assert document.selection.first == 1
    assert document.selection.stop == 3
    drums = next(track for track in document.score.tracks if track.is_drum)
    assert drums.notes[:, 0].tolist() == [bar * 48 + at for bar in range(5) for at in (0, 6)]
    assert document.plan.bars[1].source == 1  # as the given tracks have it


def test_a_whole_piece_is_accompanied(band_model):
    opening, _ = opening_of(band_model, band(bars=3), Passage(instrument=48))
    ids = sampled(opening)
    document = document_of(opening, ids)
    (strings,) = band_model.tokenizer.track_ranks([a_track(program=48)])
    assert document.header.players == (strings,)
    assert document.selection is not None
    assert document.selection[:2] == (0, None)
    assert ids.count(F.write) == 3
    assert F.gap > opening.context.max()


def test_the_model_reads_as_many_bars_as_fit_on_both_sides(piano_model, monkeypatch):
    passage = Passage(first_bar=10, last_bar=11)
    opening, prompt = opening_of(piano_model, two_hands(20), passage)
    assert np.count_nonzero(opening.context == BAR) == 19
    few, _ = opening_of(piano_model, two_hands(20), passage, prompt_bars=3)
    assert np.count_nonzero(few.context == BAR) == 7
    assert np.count_nonzero(few.context == F.later) == 3
    most = int(prompt.bar_lengths[:8].sum())
    monkeypatch.setattr("app.compose.piece.HEARD_TOKENS", most)
    monkeypatch.setattr(prompt_module, "HEARD_TOKENS", most)
    fitting, prompt = opening_of(piano_model, two_hands(20), passage)
    after = np.count_nonzero(fitting.context == F.later)
    before = np.count_nonzero(fitting.context == BAR) - after - 1
    assert (before, after) in ((3, 4), (4, 3), (3, 3))
    assert len(fitting.context) <= most + 10
    assert any("as many bars around the new music as fit" in one for one in prompt.facts.notices)


def test_the_pedal_does_not_sound_across_the_edges(piano_model):
    track = a_track(
        [(bar * 1920, 240, 60 + bar, 80) for bar in range(5)], controls=np.array([(0, 64, 127)])
    )
    score = Score(480, (track,), (Tempo(0, 100.0),))
    opening, prompt = opening_of(piano_model, score, Passage(first_bar=3, last_bar=3))
    assert prompt.gap is not None
    assert rows(prompt.gap.kept.tracks[0])[:2] == [(0, 3840, 60, 80), (1920, 1920, 61, 80)]
    assert not opening.rule.grammar.sounding  # type: ignore[attr-defined]
    # a key that sounds into the passage is not struck
    score = Score(480, (Track.of([(0, 2880, 60, 80), (3840, 480, 64, 80)]),), (Tempo(0, 100.0),))
    opening, _ = opening_of(piano_model, score, Passage(first_bar=2, last_bar=2))
    assert (1, F.pitch + 60) in {note[:2] for note in opening.rule.grammar.sounding}  # type: ignore[attr-defined]


def test_changes_of_metre_and_tempo_in_the_passage(band_model):
    score = band(bars=8)
    metres = (TimeSignature(0, 4, 4), TimeSignature(3840, 3, 4), TimeSignature(6720, 4, 4))
    tempos = (Tempo(0, 100.0), Tempo(4000, 60.0), Tempo(5280, 140.0))
    score = replace(score, time_signatures=metres, tempos=tempos)
    for tracks in (None, frozenset({0})):
        passage = Passage(first_bar=2, last_bar=5, tracks=tracks)
        opening, prompt = opening_of(band_model, score, passage)
        assert prompt.gap is not None
        bpm = [tempo.bpm for tempo in prompt.gap.kept.tempos]
        assert bpm == pytest.approx([100.0, 140.0], rel=1e-4)
        assert sampled(opening).count(F.write) == 4
    assert not any("last tempo" in notice for notice in prompt.facts.notices)


def test_controllers_stay_and_this_is_said(piano_model):
    score = two_hands(4)
    pedal = np.array([(at, 64, value) for at in (0, 1920, 3840) for value in (127, 0)])
    score = score.with_tracks([replace(score.tracks[0], controls=pedal), score.tracks[1]])
    data = write_midi(score)
    passage = Passage(first_bar=2, last_bar=2)
    prompt = read_prompt(data, tokenizer=piano_model.tokenizer, passage=passage)
    said = "controllers and bends where music is written stay as they are (2 events)"
    assert said in prompt.facts.notices
    (piece,) = fill_midi(piano_model, data, passage, MusicOptions(seed=1)).pieces
    controls = [track.controls.tolist() for track in read_midi(data).tracks]
    assert [track.controls.tolist() for track in read_midi(piece.midi).tracks] == controls


# ---- what cannot be written


def test_a_passage_that_does_not_exist_is_refused(band_model):
    for passage, problem in (
        (Passage(first_bar=7, last_bar=8), "begin at bar 7, expected 1 to 6"),
        (Passage(first_bar=3, last_bar=2), "is 2, expected 3"),
        (Passage(first_bar=2, last_bar=5000), "is 5000, expected 2 to 4097"),
        (Passage(first_bar=2, tracks=frozenset({3})), "no track 3, expected 0 to 2"),
        (Passage(), "all bars and tracks are selected"),
        (Passage(first_bar=2, last_bar=70, tracks=frozenset({0})), "69 bars .* at most 64"),
    ):
        with pytest.raises(MidiError, match=problem):
            opening_of(band_model, band(bars=5), passage)


def test_models_write_only_what_they_can_tell_apart(band_model, piano_model):
    drums = [
        a_track([(bar * 1920, 10, pitch, 80) for bar in range(4)], is_drum=True, name=name)
        for pitch, name in ((36, "Kick"), (42, "Hat"))
    ]
    score = Score(480, (*band(bars=4).tracks[:2], *drums), (Tempo(0, 100.0),))
    passage = Passage(first_bar=2, last_bar=3, tracks=frozenset({2}))
    with pytest.raises(MidiError, match="reads Kick and Hat as one track of Drums"):
        opening_of(band_model, score, passage)
    with pytest.raises(MidiError, match="choose another instrument, or write that track again"):
        opening_of(band_model, score, Passage(instrument=128))  # drums
    with pytest.raises(TokenizerError, match="does not read the track Kick"):
        opening_of(piano_model, score, passage)
    for other in (Passage(first_bar=2, tracks=frozenset({0})), Passage(instrument=33)):
        with pytest.raises(TokenizerError, match="reads all tracks as one piano, so it cannot"):
            opening_of(piano_model, band(bars=4), other)
    both = Passage(first_bar=2, last_bar=3, tracks=frozenset({2, 3}))
    (piece,) = fill_midi(band_model, write_midi(score), both, MusicOptions(seed=1)).pieces
    assert {t.name for t in piece.new.tracks if len(t)} <= {"Kick", "Hat"}


def test_new_drums_are_refused_before_they_are_written_if_channel_10_has_a_melody(band_model):
    steps = [0, 2, 4, 5, 7, 5, 4, 2, 0, -1, 0, 2, 4, 7, 5, 2]
    notes = [(at * 480, 400, 67 + step, 80) for at, step in enumerate(steps)]
    data = write_midi(Score(480, (a_track(notes, program=73, name="Flute"),)))
    for status in (0x80, 0x90, 0xC0):
        data = data.replace(bytes((status,)), bytes((status | 9,)))
    (melody,) = read_midi(data).tracks
    assert (melody.channel, melody.is_drum) == (9, False)
    with pytest.raises(MidiError, match="channel 10 has a melody"):
        read_prompt(data, tokenizer=band_model.tokenizer, passage=Passage(instrument=DRUMS))
