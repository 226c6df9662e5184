"""Uploads: the region and tracks that the model reads, tracks that may play, and limits of size."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.compose.continuation import continue_prompt
from app.compose.models import Models, MusicModel
from app.compose.options import MusicOptions
from app.compose.prompt.prompt import read_prompt
from app.server import uploads
from app.server.sandbox import LimitError
from app.server.uploads import READER, Upload, read_upload
from tests.support import musicxml
from tests.support.bands import model_of
from tokenization.errors import MidiError
from tokenization.midi import write_midi
from tokenization.midi.musicxml import as_midi
from tokenization.remi.multitrack import MultitrackRemi
from tokenization.remi.remi import PianoRemi
from tokenization.score import Score, Tempo, TimeSignature, Track

if TYPE_CHECKING:
    from pathlib import Path

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
    return model_of(MultitrackRemi())


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
    heard = [track for track in heard_tokens(chosen).tracks if len(track)]
    assert {(track.program, track.is_drum) for track in heard} == {(0, False), (0, True)}
    pitches = np.concatenate([track.notes[:, 2] for track in heard if not track.is_drum])
    assert pitches.tolist() == [40 + bar for bar in range(BARS)]


@settings(max_examples=6)
@given(
    played=st.frozensets(st.integers(0, LATE), min_size=1),
    heard=st.frozensets(st.integers(0, LATE), min_size=1),
    seed=st.integers(0, 99),
)
def test_new_music_is_only_in_tracks_that_may_play(upload, played, heard, seed):
    prompt = upload.choose(None, BARS, heard, played).prompt
    *_, result = continue_prompt(upload.model, prompt, MusicOptions(bars=3, seed=seed))
    (piece,) = result.pieces  # type: ignore[union-attr]
    places = [(t.chunk, t.channel, t.program) for t in upload.whole.score.tracks]
    new = {(t.chunk, t.channel, t.program) for t in piece.new.tracks if len(t)}
    assert piece.bars == 3
    assert new <= {places[number] for number in played}
    for before, after in zip(upload.whole.score.tracks, piece.score.tracks, strict=False):
        np.testing.assert_array_equal(after.notes[after.notes[:, 0] < BARS * BAR], before.notes)


def test_rows_say_what_is_read_of_each_track(upload):
    rows = upload.whole.facts.rows
    assert [row.id for row in rows] == list(range(6))
    assert [row.notes for row in rows] == [len(track) for track in band().tracks]
    assert all(row.heard and not row.why for row in rows)
    assert (rows[DRUMS].drums, rows[DRUMS].instrument) == (True, "Drums")
    assert len({row.name for row in rows}) == 6
    chosen = upload.choose(2, 4, ALL - {BASS}, frozenset({LEAD}))
    assert {row.id: row.why for row in chosen.prompt.facts.rows if not row.heard} == {
        BASS: "not part of the prompt",
        LATE: "no notes in bars 2 to 4",
    }
    frames = chosen.prompt_frame()["tracks"]
    assert [frame.get("id") for frame in frames] == list(range(6))
    assert [frame.get("heard") for frame in frames] == [True, True, False, True, True, True]
    assert [frame.get("played") for frame in frames] == [True] + [False] * 5
    prompt = read_prompt(upload.whole.data, tokenizer=PianoRemi())
    why = ["", "", "read as a piano", "read as a piano", "the piano model ignores drums"]
    assert [row.why for row in prompt.facts.rows] == [*why, "read as a piano"]


def test_an_impossible_choice_is_refused(upload):
    for choice, error in (
        ((0, 6, None, None), "first bar of the prompt is 0, expected 1 to 6"),
        ((5, 4, None, None), "first bar of the prompt is 5, expected 1 to 4"),
        ((1, 7, None, None), "last bar of the prompt is 7, expected 1 to 6"),
        ((1, 6, frozenset({6}), None), "no track 6, expected 0 to 5"),
        ((1, 6, None, frozenset({-1})), "no track -1, expected 0 to 5"),
        ((1, 6, frozenset(), None), "under Prompt"),
        ((1, 6, None, frozenset()), "under May play"),
        ((1, 4, None, frozenset({LATE})), "no usable notes up to bar 4"),
    ):
        with pytest.raises(MidiError, match=error):
            upload.choose(*choice)


def test_a_file_with_more_than_the_page_takes_is_refused(model, tmp_path, monkeypatch):
    """Each track has the controllers of its channel: a file of a few MB can have a billion."""
    path = tmp_path / "band.mid"
    path.write_bytes(write_midi(band()))
    size = path.stat().st_size
    models = Models.only(model)
    assert read_upload(path, size, models).bars == BARS
    with pytest.raises(MidiError, match=rf"band\.mid: found {size:,} .* at most {size - 1:,};"):
        read_upload(path, size - 1, models)
    monkeypatch.setattr(uploads, "MOST_NOTES", band().num_notes - 1)
    with pytest.raises(MidiError, match=r"band\.mid: found 74 notes, expected at most 73; use a"):
        read_upload(path, size, models)
    monkeypatch.setattr(uploads, "MOST_NOTES", band().num_notes)
    controls = np.array([[at, 1, at % 128] for at in range(100)])
    tracks = [replace(track, channel=3, controls=controls) for track in band().tracks[:2]]
    path.write_bytes(write_midi(band().with_tracks(tracks)))
    monkeypatch.setattr(uploads, "MOST_CONTROLS", 199)
    with pytest.raises(MidiError, match="found 200 controllers and bends in all tracks"):
        read_upload(path, 10_000, models)
    monkeypatch.setattr(uploads, "MOST_CONTROLS", 200)
    # tables from the sandbox are read-only, and tracks of one channel share its controllers
    one, other = read_upload(path, 10_000, models).whole.score.tracks
    for table in (one.notes, one.controls, one.bends):
        assert not table.flags.writeable
    assert one.controls is other.controls


def test_choosing_everything_changes_nothing_and_an_upload_is_parsed_once(
    model, tmp_path, monkeypatch, parsed
):
    monkeypatch.setattr(READER, "call", lambda function, *given, **named: function(*given, **named))
    path = tmp_path / "band.mid"
    path.write_bytes(write_midi(band()))
    upload = read_upload(path, 100_000, Models.only(model))
    for same in (
        upload.choose(1, BARS, ALL, ALL),
        upload.choose(None, BARS, None, None),
        upload.counted_by("file"),
    ):
        np.testing.assert_array_equal(same.prompt.ids, upload.prompt.ids)
        assert same.whole.facts == upload.whole.facts
    upload.counted_by("estimate")
    upload.choose(2, BARS, frozenset({HAND}), None)
    assert parsed == {upload.whole.data: 1}
    cut = upload.choose(None, 3, None, None).prompt.data
    assert parsed == {upload.whole.data: 1, cut: 1}


def test_a_file_that_cannot_be_read_is_refused_in_one_sentence(model, tmp_path, monkeypatch):
    def too_slow(*_, **__):
        raise LimitError("takes over 20 s")

    path = tmp_path / "song.mid"
    for make in (lambda: None, path.mkdir):
        make()
        with pytest.raises(MidiError, match=r"^song.mid: the upload cannot be read .*; upload"):
            read_upload(path, 1000, Models.only(model))
    path.rmdir()
    path.write_bytes(write_midi(band()))
    monkeypatch.setattr(READER, "call", too_slow)
    with pytest.raises(MidiError, match=r"song\.mid: reading the file takes over 20 s; use"):
        read_upload(path, 10**7, Models.only(model))


def test_musicxml_is_uploaded_as_a_midi_file_and_what_it_lost_is_said_of_all_its_prompts(
    model: MusicModel, tmp_path: Path
) -> None:
    pytest.importorskip("music21")
    sung = musicxml.note("C4", 16, "<lyric><text>la</text></lyric>")
    written = musicxml.score({"Piano": musicxml.bars(*[sung] * 4)})
    path = tmp_path / "song.mxl"
    path.write_bytes(musicxml.compressed(written))
    upload = read_upload(path, 100_000, Models.only(model))
    assert upload.whole.data == as_midi(written, "song.mxl")
    assert (upload.whole.bars, upload.score.num_notes) == (4, 4)
    for each in (upload, upload.choose(None, 2, None, None), upload.counted_by("grid")):
        assert "the file was read without its lyrics" in each.prompt.facts.notices
    path.write_bytes(written[:-30])
    with pytest.raises(MidiError, match=r"song\.mxl: this MusicXML cannot be read"):
        read_upload(path, 100_000, Models.only(model))
