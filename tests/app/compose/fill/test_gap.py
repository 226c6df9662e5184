"""Bars and tracks of a piece that are written again, and new tracks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from app.compose import prompt as prompt_module
from app.compose.continuation import Variations, continue_prompt, fill_midi
from app.compose.engine import Engine
from app.compose.fill.passage import DRUMS, Passage
from app.compose.models import MusicModel
from app.compose.options import MusicOptions
from app.compose.piece import Opening
from app.compose.prompt import Prompt, passage_options, read_prompt
from tests.support.bands import a_track, band, model_of
from tests.support.scores import performance, two_hands
from tokenization.analysis.chord_symbols import chord_symbol
from tokenization.document import Selection
from tokenization.errors import MidiError, TokenizerError
from tokenization.midi import append_to_midi, read_midi, write_midi
from tokenization.remi.grammar import RemiGrammar
from tokenization.remi.multitrack import MultitrackRemi
from tokenization.remi.remi import PianoRemi, Remi
from tokenization.remi.vocabulary import BAR, EOS, MULTITRACK_FAMILIES
from tokenization.score import Score, Tempo, TimeSignature, Track

F = MULTITRACK_FAMILIES


@pytest.fixture(scope="module")
def band_model() -> MusicModel:
    return model_of(MultitrackRemi())


@pytest.fixture(scope="module")
def piano_model() -> MusicModel:
    return model_of(PianoRemi())


def opening_of(
    model: MusicModel, score: Score, passage: Passage, **options: Any
) -> tuple[Opening, Prompt]:
    prompt = read_prompt(write_midi(score), tokenizer=model.tokenizer, passage=passage)
    music = passage_options(MusicOptions(**options), passage, prompt)
    return Opening.after(model, prompt, music), prompt


def sampled(opening: Opening, seed: int = 1) -> list[int]:
    """Ids that follow an opening, each drawn evenly from what the rule allows."""
    rng, rule, ids = np.random.default_rng(seed), opening.rule, []
    while not rule.finished:
        allowed = np.flatnonzero(rule.allowed)
        ends = [token for token in (BAR, EOS) if token in allowed]
        token = ends[0] if ends and rng.random() < 0.2 else int(rng.choice(allowed))
        ids.append(token)
        rule = rule.advance(token)
    return ids


def rows(track: Track) -> list[tuple[int, ...]]:
    return [tuple(row) for row in track.notes.tolist()]


def kept(track: Track, start: int, stop: int) -> list[tuple[int, ...]]:
    return [row for row in rows(track) if not start <= row[0] < stop]


# ---- what is written


@pytest.mark.parametrize(("rests", "expected"), [((), "Am7"), ((1,), "C")])
def test_the_bars_keep_the_chords_to_which_the_replaced_track_belongs(band_model, rests, expected):
    starts = [bar * 1920 for bar in range(4)]
    chords = Track.of([(at, 1900, pitch, 70) for at in starts for pitch in (60, 64, 67)])
    bass = Track.of([(at + half, 900, 33, 90) for at in starts for half in (0, 960)], program=33)
    drums = Track.of([(at, 10, 42, 80) for at in starts], is_drum=True)
    score = Score(480, (chords, bass, drums), (Tempo(0, 100),), (TimeSignature(0, 4, 4),), 7680)
    tracks = {2} if rests else {1}  # the bass is written again, or rests while the drums are
    passage = Passage(first_bar=2, last_bar=3, tracks=frozenset(tracks), rests=frozenset(rests))
    opening, _ = opening_of(band_model, score, passage)
    grammar = opening.rule.grammar
    assert isinstance(grammar, RemiGrammar)
    fixed = list(grammar.rules.bars.values())
    assert len(fixed) == 2
    for bar in fixed:
        assert [chord_symbol(one.chord) for one in bar.chords or ()] == [expected]


@pytest.mark.parametrize(("last", "count"), [(3, 0), (5, 1)])
def test_a_new_track_beyond_the_end_is_told(band_model, last, count):
    passage = Passage(first_bar=2, last_bar=last, instrument=60)
    _, prompt = opening_of(band_model, band(), passage)
    assert sum("the piece ends with bar 3" in one for one in prompt.facts.notices) == count


def test_bars_return_to_bars_with_their_chords_and_not_note_for_note(band_model):
    starts = [bar * 1920 for bar in range(5)]
    chords = Track.of([(at, 1900, pitch, 70) for at in starts for pitch in (57, 60, 64)])
    roots = [(at, 1900, (33, 29)[bar % 2], 90) for bar, at in enumerate(starts)]
    tracks = chords, Track.of(roots, program=33)
    score = Score(480, tracks, (Tempo(0, 100),), (TimeSignature(0, 4, 4),), 9600)
    passage = Passage(first_bar=1, last_bar=5, tracks=frozenset({1}))
    opening, _ = opening_of(band_model, score, passage)
    grammar = opening.rule.grammar
    assert isinstance(grammar, RemiGrammar)
    fixed = list(grammar.rules.bars.values())
    symbols = [[chord_symbol(one.chord) for one in bar.chords or ()] for bar in fixed]
    assert symbols == [["Am"], ["Fmaj7"], ["Am"], ["Fmaj7"], ["Am"]]
    assert [bar.sources for bar in fixed[2:]] == [(2,)] * 3
    assert not any(bar.exact for bar in fixed)


@pytest.mark.parametrize("metre", [(4, 4), (6, 8), (7, 16), (13, 4)])
@pytest.mark.parametrize("tracks", [None, frozenset({1}), frozenset({0, 2})])
def test_only_the_passage_changes(
    band_model: MusicModel, metre: tuple[int, int], tracks: frozenset[int] | None
) -> None:
    data = write_midi(band(metre, bars=6))
    passage = Passage(first_bar=3, last_bar=4, tracks=tracks)
    asked = MusicOptions(seed=1, variations=2)
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


def test_bars_of_a_piano_piece(piano_model: MusicModel) -> None:
    data = write_midi(two_hands(8))
    (piece,) = fill_midi(
        piano_model, data, Passage(first_bar=3, last_bar=6), MusicOptions(seed=1)
    ).pieces
    before, after = read_midi(data), read_midi(piece.midi)
    assert [kept(t, 2 * 1920, 6 * 1920) for t in after.tracks] == [
        kept(t, 2 * 1920, 6 * 1920) for t in before.tracks
    ]
    assert piece.notes


def test_a_new_track_is_added_and_the_others_keep_their_bytes(band_model: MusicModel) -> None:
    data = write_midi(band(bars=4))
    for instrument, program in ((48, 48), (33, 33), (0, 0)):
        (piece,) = fill_midi(
            band_model, data, Passage(instrument=instrument), MusicOptions(seed=1)
        ).pieces
        assert piece.midi[14:].startswith(data[14:])  # all but the number of tracks
        new = read_midi(piece.midi).tracks[3]
        assert (new.program, new.is_drum, new.channel) == (program, False, 2)
        assert len(new) == piece.notes > 0
    piano = write_midi(two_hands(4))
    passage = Passage(first_bar=2, last_bar=3, instrument=DRUMS)
    (piece,) = fill_midi(band_model, piano, passage, MusicOptions(seed=2)).pieces
    *_, drums = read_midi(piece.midi).tracks
    assert (drums.is_drum, drums.channel, drums.name) == (True, 9, "Drums")
    assert 1920 <= drums.notes[:, 0].min() <= drums.notes[:, 0].max() < 3 * 1920


def test_after_the_end_the_piece_is_continued(small_model: MusicModel) -> None:
    data = write_midi(two_hands(4))
    options = MusicOptions(seed=1)
    (piece,) = fill_midi(small_model, data, Passage(first_bar=5, last_bar=6), options).pieces
    prompt = read_prompt(data)
    *_, result = continue_prompt(small_model, prompt, replace(options, bars=2))
    assert piece.midi == result.pieces[0].midi  # type: ignore[union-attr]


def test_the_last_bars_are_continued_from_the_bars_before(small_model: MusicModel) -> None:
    data = write_midi(two_hands(4))
    (piece,) = fill_midi(
        small_model, data, Passage(first_bar=3, last_bar=6), MusicOptions(seed=1)
    ).pieces
    *_, result = continue_prompt(
        small_model, read_prompt(data, last_bar=2), MusicOptions(seed=1, bars=4)
    )
    (continued,) = result.pieces  # type: ignore[union-attr]
    whole = read_midi(piece.midi)
    for track, other in zip(whole.tracks, read_midi(continued.midi).tracks, strict=True):
        assert rows(track) == rows(other)


def test_empty_bars_are_filled(band_model: MusicModel) -> None:
    score = band(bars=8)
    tracks = [
        replace(t, notes=t.notes[(t.notes[:, 0] < 3840) | (t.notes[:, 0] >= 7680)])
        for t in score.tracks
    ]
    data = write_midi(score.with_tracks(tracks))
    (piece,) = fill_midi(
        band_model, data, Passage(first_bar=3, last_bar=4), MusicOptions(seed=1)
    ).pieces
    before = read_midi(data).num_notes
    assert read_midi(piece.midi).num_notes == before + piece.notes > before


def test_a_recording_is_filled_in_its_estimated_bars(piano_model: MusicModel) -> None:
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


def test_after_a_stop_bars_that_were_not_begun_keep_their_notes(band_model: MusicModel) -> None:
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


@pytest.mark.parametrize("seed", range(3))
def test_bars_are_infilled(piano_model: MusicModel, seed: int) -> None:
    score = two_hands(8)
    opening, _ = opening_of(piano_model, score, Passage(first_bar=4, last_bar=6))
    ids = sampled(opening, seed)
    piano_model.tokenizer.grammar().resume([*opening.context.tolist(), *ids])
    document = document_of(opening, ids)
    assert document.selection == Selection(3, 6)
    assert (document.begins, document.ends) == (True, True)
    assert ids.count(F.write) == 3
    notes, wanted = (
        np.concatenate([track.notes for track in one.tracks])[:, [0, 2]].tolist()
        for one in (document.score, piano_model.tokenizer.decode(
            piano_model.tokenizer.encode(score).ids
        ))
    )  # fmt: skip
    outside = [note for note in wanted if not 3 * 48 <= note[0] < 6 * 48]
    assert [note for note in notes if not 3 * 48 <= note[0] < 6 * 48] == outside


@pytest.mark.parametrize("seed", range(3))
def test_given_tracks_are_read_in_every_bar(band_model: MusicModel, seed: int) -> None:
    passage = Passage(first_bar=2, last_bar=3, tracks=frozenset({1}))
    opening, _ = opening_of(band_model, band(bars=5), passage)
    ids = sampled(opening, seed)
    band_model.tokenizer.grammar().resume([*opening.context.tolist(), *ids])
    document = document_of(opening, ids)
    (bass,) = band_model.tokenizer.track_ranks([a_track(program=33)])
    assert document.header.players == (bass,)
    assert document.selection.first == 1
    assert document.selection.stop == 3
    drums = next(track for track in document.score.tracks if track.is_drum)
    assert drums.notes[:, 0].tolist() == [bar * 48 + at for bar in range(5) for at in (0, 6)]
    assert document.plan.bars[1].source == 1  # as the given tracks have it


@pytest.mark.parametrize("seed", range(3))
def test_a_whole_piece_is_accompanied(band_model: MusicModel, seed: int) -> None:
    opening, _ = opening_of(band_model, band(bars=3), Passage(instrument=48))
    ids = sampled(opening, seed)
    document = document_of(opening, ids)
    (strings,) = band_model.tokenizer.track_ranks([a_track(program=48)])
    assert document.header.players == (strings,)
    assert document.selection is not None
    assert document.selection[:2] == (0, None)
    assert ids.count(F.write) == 3
    assert F.gap > opening.context.max()


def test_coordinates_are_counted_from_the_gap(band_model: MusicModel) -> None:
    opening, _ = opening_of(band_model, band(bars=6), Passage(first_bar=3, last_bar=4))
    coordinates = opening.request([0]).coordinates
    assert coordinates is not None
    places, _ = coordinates.read(opening.context)  # type: ignore[misc]
    assert sorted(set(places[:, 0].tolist())) == [-2, -1, 0, 2, 3]
    assert places[-1].tolist() == [0, 0]


def test_the_model_reads_as_many_bars_as_fit_on_both_sides(
    piano_model: MusicModel, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_the_pedal_does_not_sound_across_the_edges(piano_model: MusicModel) -> None:
    track = a_track(
        [(bar * 1920, 240, 60 + bar, 80) for bar in range(5)], controls=np.array([(0, 64, 127)])
    )
    score = Score(480, (track,), (Tempo(0, 100.0),))
    opening, prompt = opening_of(piano_model, score, Passage(first_bar=3, last_bar=3))
    assert prompt.gap is not None
    assert rows(prompt.gap.kept.tracks[0])[:2] == [(0, 3840, 60, 80), (1920, 1920, 61, 80)]
    assert not opening.rule.grammar.sounding  # type: ignore[attr-defined]


def test_a_key_that_sounds_into_the_passage_is_not_struck(piano_model: MusicModel) -> None:
    score = Score(480, (Track.of([(0, 2880, 60, 80), (3840, 480, 64, 80)]),), (Tempo(0, 100.0),))
    opening, _ = opening_of(piano_model, score, Passage(first_bar=2, last_bar=2))
    assert (1, F.pitch + 60) in {note[:2] for note in opening.rule.grammar.sounding}  # type: ignore[attr-defined]


def test_changes_of_metre_and_tempo_in_the_passage(band_model: MusicModel) -> None:
    score = band(bars=8)
    score = replace(
        score,
        time_signatures=tuple(
            TimeSignature(tick, beats, 4) for tick, beats in ((0, 4), (3840, 3), (6720, 4))
        ),
        tempos=(Tempo(0, 100.0), Tempo(4000, 60.0), Tempo(5280, 140.0)),
    )
    for tracks in (None, frozenset({0})):
        opening, prompt = opening_of(
            band_model, score, Passage(first_bar=2, last_bar=5, tracks=tracks)
        )
        assert prompt.gap is not None
        bpm = [tempo.bpm for tempo in prompt.gap.kept.tempos]
        assert bpm == pytest.approx([100.0, 140.0], rel=1e-4)
        for seed in range(4):
            ids = sampled(opening, seed)
            assert ids.count(F.write) == 4
    assert not any("last tempo" in notice for notice in prompt.facts.notices)


@pytest.mark.parametrize(
    "options",
    [
        {"key": "C", "density": 5.0, "repetition": 1.0},
        {"recall": 0.0, "presence": 0.0},
        {"top_k": 5, "temperature": 0.7},
    ],
)
def test_the_options_work_in_a_gap(band_model: MusicModel, options: dict[str, Any]) -> None:
    passage = Passage(first_bar=2, last_bar=3, tracks=frozenset({0, 1}))
    data = write_midi(band(bars=5))
    asked = MusicOptions(seed=1, **options)
    first, again = (fill_midi(band_model, data, passage, asked).pieces[0] for _ in range(2))
    assert first.midi == again.midi


def test_controllers_stay_and_this_is_said(piano_model: MusicModel) -> None:
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


@pytest.mark.parametrize(
    ("passage", "problem"),
    [
        (Passage(first_bar=7, last_bar=8), "begin at bar 7, expected 1 to 6: the piece has 5 bars"),
        (Passage(first_bar=3, last_bar=2), "the last bar that is to be written is 2, expected 3"),
        (Passage(first_bar=2, last_bar=5000), "is 5000, expected 2 to 4097"),
        (Passage(first_bar=2, tracks=frozenset({3})), "there is no track 3, expected 0 to 2"),
        (Passage(), "so nothing remains for the model to read; choose fewer bars"),
        (
            Passage(first_bar=2, last_bar=70, tracks=frozenset({0})),
            "prompt.mid: 69 bars are to be written, expected at most 64",
        ),
    ],
)
def test_a_passage_that_does_not_exist_is_refused(
    band_model: MusicModel, passage: Passage, problem: str
) -> None:
    with pytest.raises(MidiError, match=problem):
        opening_of(band_model, band(bars=5), passage)


def test_tracks_that_the_model_cannot_tell_apart_are_refused(
    band_model: MusicModel, piano_model: MusicModel
) -> None:
    drums = [
        a_track([(bar * 1920, 10, pitch, 80) for bar in range(4)], is_drum=True, name=name)
        for pitch, name in ((36, "Kick"), (42, "Hat"))
    ]
    score = Score(480, (*band(bars=4).tracks[:2], *drums), (Tempo(0, 100.0),))
    passage = Passage(first_bar=2, last_bar=3, tracks=frozenset({2}))
    with pytest.raises(MidiError, match="reads Kick and Hat as one track of Drums; choose both"):
        opening_of(band_model, score, passage)
    with pytest.raises(TokenizerError, match="the model does not read the track Kick, expected"):
        opening_of(piano_model, score, passage)
    for other in (Passage(first_bar=2, tracks=frozenset({0})), Passage(instrument=33)):
        with pytest.raises(TokenizerError, match="reads all tracks as one piano, so it cannot"):
            opening_of(piano_model, band(bars=4), other)
    both = Passage(first_bar=2, last_bar=3, tracks=frozenset({2, 3}))
    (piece,) = fill_midi(band_model, write_midi(score), both, MusicOptions(seed=1)).pieces
    assert {t.name for t in piece.new.tracks if len(t)} <= {"Kick", "Hat"}


def test_models_of_version_1_only_continue(small_model: MusicModel) -> None:
    with pytest.raises(TokenizerError, match="the model can only continue a piece; choose one"):
        opening_of(small_model, two_hands(), Passage(first_bar=2, last_bar=2))
    data = write_midi(two_hands())
    assert append_to_midi(data, Score(12), 0)
