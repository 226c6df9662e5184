"""Uploads: the region and tracks that the model reads, tracks that may play, and limits of size."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from app.compose.continuation import continue_prompt
from app.compose.models import Models, MusicModel, load_music_model
from app.compose.options import MusicOptions
from app.compose.prompt import read_prompt
from app.server.sandbox import Sandbox
from app.server.uploads import READER, Upload, read_upload
from relpe.decoding.base import StepsMaker
from relpe.decoding.choose import choose_steps
from relpe.models.decoder import DecoderConfig
from tests.support import fakes, musicxml
from tokenization.errors import MidiError
from tokenization.midi import read_midi, write_midi
from tokenization.midi.musicxml import as_midi
from tokenization.remi.grammar import RemiGrammar
from tokenization.remi.multitrack import MultitrackRemi
from tokenization.remi.remi import PianoRemi
from tokenization.remi.vocabulary import MULTITRACK_FAMILIES
from tokenization.score import Score, Tempo, TimeSignature, Track

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from app.compose.piece import Piece

HAT, BAR, BARS = 42, 1920, 6
LEAD, HAND, BASS, STRINGS, DRUMS, LATE = range(6)
ALL = frozenset(range(6))


def band() -> Score:
    """Six bars: two pianos, a bass, strings, drums, and a flute that enters in bar 5."""
    starts = range(0, BARS * BAR, BAR)
    tracks = (
        Track.of([(at, 400, 76 + at // BAR, 70) for at in starts], program=0),
        Track.of([(at, 400, 40 + at // BAR, 70) for at in starts], program=0),
        Track.of([(at, 400, 28 + at // BAR, 90) for at in starts], program=33),
        Track.of([(at, 1900, 60 + at // BAR, 50) for at in starts], program=48),
        Track.of([(at, 10, HAT, 80) for at in range(0, BARS * BAR, 240)], is_drum=True),
        Track.of([(at, 400, 90, 80) for at in starts[4:]], program=73),
    )
    return Score(480, tracks, (Tempo(0, 100.0),), (TimeSignature(0, 4, 4),), BARS * BAR)


@pytest.fixture(scope="module")
def model() -> MusicModel:
    torch.manual_seed(0)
    config = DecoderConfig(vocabulary_size=812, width=16, num_layers=2, num_heads=2, hidden=24)
    decoder = config.build().eval().requires_grad_(requires_grad=False)
    return MusicModel(
        "groove", decoder, MultitrackRemi(), torch.device("cpu"), choose_steps(decoder, "torch")
    )


@pytest.fixture(scope="module")
def upload(model: MusicModel, tmp_path_factory: pytest.TempPathFactory) -> Upload:
    path = tmp_path_factory.mktemp("upload") / "band.mid"
    path.write_bytes(write_midi(band()))
    return read_upload(path, 100_000, Models.only(model))


def heard_tokens(upload: Upload) -> Score:
    """The input of the model as music, from the first bar that it reads."""
    prompt, tokenizer = upload.prompt, upload.model.tokenizer
    ids = tokenizer.crop(prompt.ids, prompt.first_heard(0))
    return tokenizer.decode(ids, tracks=prompt.sequence.tracks)


def instruments(tracks: Collection[Track]) -> set[tuple[int, bool]]:
    return {(track.program, track.is_drum) for track in tracks if len(track)}


def proceed(upload: Upload, model: MusicModel | None = None, **options: Any) -> Piece:
    *_, result = continue_prompt(model or upload.model, upload.prompt, MusicOptions(**options))
    return result.pieces[0]  # type: ignore[union-attr]


@settings(max_examples=5)
@given(first=st.integers(1, BARS), last=st.integers(1, BARS))
def test_the_end_of_the_region_cuts_what_follows_and_its_start_cuts_nothing(upload, first, last):
    first, last = min(first, last), max(first, last)
    chosen = upload.choose(first, last, None, None)
    whole = upload.choose(None, last, None, None)
    assert chosen.prompt.data == whole.prompt.data
    assert chosen.prompt.splice_ticks == last * BAR
    onsets = np.concatenate([track.notes[:, 0] for track in chosen.prompt.score.tracks])
    assert onsets.min() == 0
    assert onsets.max() < last * BAR
    heard = np.concatenate([track.notes for track in heard_tokens(chosen).tracks])
    assert sorted(set(heard[:, 0] // 48)) == list(range(last - first + 1))
    frame = chosen.prompt_frame()
    assert (frame.get("first"), frame["splice"]) == ((first - 1) * 4, last * 4)


def test_a_track_that_is_not_read_stays_in_the_file_and_out_of_the_prompt(upload):
    chosen = upload.choose(None, BARS, frozenset({HAND, DRUMS}), None)
    assert chosen.prompt.data == upload.whole.data
    tracks = {(track.program, track.is_drum): track for track in heard_tokens(chosen).tracks}
    heard = {key for key, track in tracks.items() if len(track)}
    assert heard == {(0, False), (0, True)}
    pitches = [track.notes[:, 2] for track in heard_tokens(chosen).tracks if not track.is_drum]
    assert np.concatenate(pitches).tolist() == [40 + bar for bar in range(BARS)]
    piece = proceed(chosen, bars=1, seed=1)
    for before, after in zip(upload.whole.score.tracks, piece.score.tracks, strict=False):
        np.testing.assert_array_equal(after.notes[after.notes[:, 0] < BARS * BAR], before.notes)


def test_choosing_everything_changes_nothing(upload):
    prompt = read_prompt(upload.whole.data, "band.mid", tokenizer=upload.model.tokenizer)
    for chosen in (upload, upload.choose(1, BARS, ALL, ALL), upload.until(BARS)):
        np.testing.assert_array_equal(chosen.prompt.ids, prompt.ids)
        assert proceed(chosen, bars=1, seed=3, prompt_bars=0).midi == (
            proceed(upload, bars=1, seed=3, prompt_bars=0).midi
        )


@settings(max_examples=6)
@given(
    played=st.frozensets(st.integers(0, LATE), min_size=1),
    heard=st.frozensets(st.integers(0, LATE), min_size=1),
    seed=st.integers(0, 99),
)
def test_new_music_is_only_in_tracks_that_may_play(upload, played, heard, seed):
    chosen = upload.choose(None, BARS, heard, played)
    quick = StepsMaker("quick", lambda: fakes.QuickSteps(812))
    piece = proceed(chosen, replace(upload.model, steps=quick), bars=3, seed=seed)
    places = [(t.chunk, t.channel, t.program) for t in upload.whole.score.tracks]
    new = {(t.chunk, t.channel, t.program) for t in piece.new.tracks if len(t)}
    assert piece.bars == 3
    assert new <= {places[number] for number in played}


@settings(max_examples=15)
@given(ranks=st.frozensets(st.integers(0, 515), min_size=1, max_size=3), data=st.data())
def test_a_grammar_of_few_tracks_is_never_stuck(ranks, data):
    """All pitches sound already: a position at which no pitch is free must not be allowed."""
    rules = MultitrackRemi().grammar(tempo="never", end=False).rules._replace(tracks=ranks)
    grammar = RemiGrammar(MULTITRACK_FAMILIES)
    for token in MultitrackRemi().encode(Score(12, (Track.of([(0, 12, 60, 80)]),))).ids[:-1]:
        grammar = grammar.advance(int(token))
    held = ((rank, pitch, 400) for rank in ranks for pitch in range(128))
    grammar = grammar._replace(rules=rules).hold(held)
    for _ in range(30):
        allowed = np.flatnonzero(grammar.allowed)
        assert len(allowed)
        grammar = grammar.advance(int(allowed[data.draw(st.integers(0, len(allowed) - 1))]))


def test_rows_say_what_is_read_of_each_track(upload):
    rows = upload.whole.facts.rows
    assert [row.id for row in rows] == list(range(6))
    assert [row.notes for row in rows] == [len(track) for track in band().tracks]
    assert all(row.heard and not row.why for row in rows)
    assert (rows[DRUMS].drums, rows[DRUMS].instrument) == (True, "Drums")
    assert len({row.name for row in rows}) == 6
    rows = upload.choose(2, 4, ALL - {BASS}, None).prompt.facts.rows
    assert {row.id: row.why for row in rows if not row.heard} == {
        BASS: "not part of the prompt",
        LATE: "no notes in bars 2 to 4",
    }
    frames = upload.choose(2, 4, ALL - {BASS}, frozenset({LEAD})).prompt_frame()["tracks"]
    assert [frame.get("id") for frame in frames] == list(range(6))
    assert [frame.get("heard") for frame in frames] == [True, True, False, True, True, True]
    assert [frame.get("played") for frame in frames] == [True] + [False] * 5


def test_rows_say_what_the_piano_model_does_not_read():
    tracks = [track for at, track in enumerate(band().tracks) if at != HAND]
    tracks[0] = Track.of([*tracks[0].notes.tolist(), (100, 10, 120, 80)])
    prompt = read_prompt(write_midi(band().with_tracks(tracks)), tokenizer=PianoRemi())
    assert [row.why for row in prompt.facts.rows] == [
        "1 note outside the 88 piano keys ignored",
        "read as a piano",
        "read as a piano",
        "the piano model ignores drums",
        "read as a piano",
    ]


def test_only_the_hand_that_may_play_has_new_music(quick_model):
    hands = band().with_tracks(band().tracks[:2])
    data = write_midi(hands)
    prompt = read_prompt(data, played={1})
    *_, result = continue_prompt(quick_model, prompt, MusicOptions(bars=2, seed=1))
    (piece,) = result.pieces  # type: ignore[union-attr]
    (track,) = (track for track in piece.new.tracks if len(track))
    assert track.chunk == read_midi(data).tracks[1].chunk


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ((0, 6, None, None), "the first bar of the prompt is 0, expected 1 to 6"),
        ((5, 4, None, None), "the first bar of the prompt is 5, expected 1 to 4"),
        ((1, 7, None, None), "the last bar of the prompt is 7, expected 1 to 6"),
        ((1, 6, frozenset({6}), None), "there is no track 6, expected 0 to 5"),
        ((1, 6, None, frozenset({-1})), "there is no track -1, expected 0 to 5"),
        ((1, 6, frozenset(), None), "tick another track under Prompt"),
        ((1, 6, None, frozenset()), "tick another track under May play"),
        (
            (1, 4, None, frozenset({LATE})),
            "no usable notes up to bar 4 in the tracks that may play",
        ),
    ],
)
def test_an_impossible_choice_is_refused(upload, choice, message):
    with pytest.raises(MidiError, match=message):
        upload.choose(*choice)


def test_a_file_with_more_notes_than_the_page_takes_is_refused(model, tmp_path, monkeypatch):
    path = tmp_path / "band.mid"
    path.write_bytes(write_midi(band()))
    monkeypatch.setattr("app.server.uploads.MOST_NOTES", 10)
    with pytest.raises(
        MidiError, match=r"band\.mid: found 74 notes, expected at most 10; use a part"
    ):
        read_upload(path, 100_000, Models.only(model))


def test_reading_in_the_sandbox_gives_the_same_prompt(upload):
    here = read_prompt(upload.whole.data, upload.whole.name, tokenizer=upload.model.tokenizer)
    there = upload.whole
    assert (there.score, there.facts) == (here.score, here.facts)
    assert (there.splice, there.bars, there.parts) == (here.splice, here.bars, here.parts)
    np.testing.assert_array_equal(there.ids, here.ids)


def test_an_upload_is_parsed_once(model, tmp_path, monkeypatch, parsed):
    monkeypatch.setattr(READER, "call", lambda function, *given, **named: function(*given, **named))
    path = tmp_path / "band.mid"
    path.write_bytes(write_midi(band()))
    upload = read_upload(path, 100_000, Models.only(model))
    upload.counted_by("estimate")
    upload.choose(2, BARS, frozenset({HAND}), None)
    assert parsed == {upload.whole.data: 1}
    cut = upload.until(3).prompt.data
    assert parsed == {upload.whole.data: 1, cut: 1}


def test_tables_from_the_sandbox_are_read_only_and_shared(tmp_path, model):
    """Tracks of one channel share its controllers: a thousand copies would fill the memory."""
    controls = np.array([[at, 1, at % 128] for at in range(1000)])
    tracks = [replace(track, channel=3, controls=controls) for track in band().tracks[:2]]
    path = tmp_path / "shared.mid"
    path.write_bytes(write_midi(band().with_tracks(tracks)))
    one, other = read_upload(path, 100_000, Models.only(model)).whole.score.tracks
    for table in (one.notes, one.controls, one.bends):
        assert not table.flags.writeable
    assert one.controls is other.controls
    assert replace(one, name="again").controls is one.controls


def messages(*events: bytes) -> bytes:
    """A file of one track; each event begins with its time."""
    content = b"".join(events) + b"\0\xff\x2f\0"
    header = b"MThd" + bytes([0, 0, 0, 6, 0, 0, 0, 1, 1, 224])
    return header + b"MTrk" + len(content).to_bytes(4, "big") + content


NOTE = b"\x18\x90\x3c\x50\x14\x80\x3c\0"


def test_a_file_that_takes_too_long_is_refused_in_one_sentence(model, tmp_path, monkeypatch):
    path = tmp_path / "hostile.mid"
    path.write_bytes(messages(*(bytes([0, 0xC0, at % 128]) + NOTE for at in range(30_000))))
    with closing(Sandbox(0.001)) as reader:
        monkeypatch.setattr("app.server.uploads.READER", reader)
        with pytest.raises(
            MidiError,
            match=r"hostile\.mid: reading the file takes over 0.001 s; use",
        ):
            read_upload(path, 10**7, Models.only(model))


def test_a_file_with_more_controllers_than_the_page_takes_is_refused(model, tmp_path, monkeypatch):
    """Each track has those of its channel, so that a file of a few MB can have a billion."""
    path = tmp_path / "hostile.mid"
    controls = b"\1\xb0\1\2" * 1000
    path.write_bytes(messages(controls, *(bytes([0, 0xC0, at]) + NOTE for at in range(100))))
    monkeypatch.setattr("app.server.uploads.MOST_CONTROLS", 99_999)
    with pytest.raises(MidiError, match="found 100,000 controllers and bends in all tracks"):
        read_upload(path, 10**7, Models.only(model))
    monkeypatch.setattr("app.server.uploads.MOST_CONTROLS", 100_000)
    assert read_upload(path, 10**7, Models.only(model)).bars


@pytest.mark.slow
@pytest.mark.parametrize("played", [{DRUMS}, {BASS}, {HAND}, {DRUMS, LATE}, ALL])
def test_the_released_groove_model_uses_only_instruments_that_may_play(
    tmp_path: Path, played: set[int]
) -> None:
    data = write_midi(band())
    model = load_music_model("groove")
    prompt = read_prompt(data, tokenizer=model.tokenizer, heard=ALL - {LEAD}, played=played)
    *_, result = continue_prompt(model, prompt, MusicOptions(bars=8, seed=1, temperature=1.3))
    (piece,) = result.pieces  # type: ignore[union-attr]
    allowed = [prompt.score.tracks[number] for number in played]
    assert piece.bars == 8
    assert piece.notes
    assert instruments(piece.new.tracks) <= instruments(allowed)


def test_a_file_over_the_limit_is_refused_before_it_is_read(model, tmp_path):
    path = tmp_path / "big.mid"
    path.write_bytes(bytes(2000))
    with pytest.raises(MidiError, match=r"big.mid: found 2,000 .* at most 1,000;"):
        read_upload(path, 1000, Models.only(model))


@pytest.mark.parametrize("kind", ["gone", "folder"])
def test_a_missing_upload_is_reported_in_one_sentence(model, tmp_path, kind):
    path = tmp_path / "song.mid"
    if kind == "folder":
        path.mkdir()
    with pytest.raises(MidiError, match=r"^song.mid: the upload cannot be read .*; upload"):
        read_upload(path, 1000, Models.only(model))


def test_what_musicxml_lost_is_said_of_all_its_prompts(model: MusicModel, tmp_path: Path) -> None:
    pytest.importorskip("music21")
    sung = musicxml.note("C4", 16, "<lyric><text>la</text></lyric>")
    path = tmp_path / "song.musicxml"
    path.write_bytes(musicxml.score({"Piano": musicxml.bars(*[sung] * 4)}))
    uploaded = read_upload(path, 100_000, Models.only(model))
    for one in (uploaded, uploaded.until(2), uploaded.counted_by("grid")):
        assert "the file was read without its lyrics" in one.prompt.facts.notices


def test_musicxml_is_uploaded_as_a_midi_file(model: MusicModel, tmp_path: Path) -> None:
    pytest.importorskip("music21")
    written = musicxml.score({"Piano": musicxml.bars(*[musicxml.note("C4", 16)] * 4)})
    path = tmp_path / "song.mxl"
    path.write_bytes(musicxml.compressed(written))
    uploaded = read_upload(path, 100_000, Models.only(model))
    assert uploaded.whole.data == as_midi(written, "song.mxl")
    assert (uploaded.whole.bars, uploaded.score.num_notes) == (4, 4)
    path.write_bytes(written[:-30])
    with pytest.raises(MidiError, match=r"song\.mxl: this MusicXML cannot be read"):
        read_upload(path, 100_000, Models.only(model))
