"""Jobs that write a part of a piece."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.audio import stems
from app.compose import replay
from app.compose.fill.passage import Passage
from app.compose.models import Models
from app.compose.options import MusicOptions
from app.compose.prompt import passage_options
from app.server.studio import Studio
from app.server.uploads import read_upload
from tests.support import fakes
from tests.support.bands import band, model_of
from tokenization.errors import MidiError
from tokenization.midi import read_midi, write_midi
from tokenization.remi.multitrack import MultitrackRemi, MultitrackRemiConfig


@pytest.fixture
def filling(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Studio:
    """A studio with a small model of version 2; its sound is silent."""
    monkeypatch.setattr(stems, "render", fakes.silent_stems)
    tokenizer = MultitrackRemi(MultitrackRemiConfig(version=2))
    return Studio(Models.only(model_of(tokenizer)), tmp_path / "out")


def test_a_part_of_an_upload_is_written(filling: Studio, tmp_path: Path) -> None:
    path = tmp_path / "song.mid"
    path.write_bytes(write_midi(band(bars=6)))
    passage = Passage(first_bar=3, last_bar=4, tracks=frozenset({1, 2}))
    upload = read_upload(path, 100_000, filling.models).writing(passage)
    assert (upload.bars, upload.splice, upload.first_bar) == (2, 8.0, 1)
    options = passage_options(MusicOptions(seed=1), passage, upload.prompt)
    last: Any = list(filling.compose("me", upload, options))[-1]
    (row,) = last["variations"]
    assert row["settings"].startswith("seed 1 · Electric Bass (finger) and Drums, bars 3 to 4 · ")
    made = Path(row["midi"])
    assert made.name == "song_a2_i2_second_b2_s1_T1.00_p0.97.mid"
    before, after = read_midi(path), read_midi(made)
    assert before.tracks[0] == after.tracks[0]
    assert last["timeline"]["end"] == 24
    settings = json.loads(filling.file(last["job"], 0, "replay").read_text())
    assert replay.from_settings(settings).passage == passage
    with pytest.raises(MidiError, match="begin at bar 9"):
        upload.writing(Passage(first_bar=9))
    # tracks that were to be written and have no notes are named
    job = filling.kept.get(last["job"])[1]
    (piece,) = job.pieces
    bass = upload.score.tracks[1]
    for tracks, facts in (
        (upload.score.tracks, []),
        ((bass,), ["no notes in Drums"]),
        ((), ["nothing was written"]),
    ):
        assert job._without_notes(replace(piece, new=piece.new.with_tracks(tracks))) == facts
