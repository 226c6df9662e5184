"""The sound of jobs: rendered once, in turn, within limits of threads."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pytest
import soundfile

from app.audio import stems
from app.compose.models import Models
from app.compose.options import MusicOptions
from app.compose.piece import Piece
from app.errors import BusyError
from app.player.frames import pack_notes, pack_tracks
from app.server import job_audio
from app.server.job import PROMPT_ALONE
from app.server.studio import Studio
from app.server.uploads import read_upload
from tests.support.fakes import silent_stems
from tests.support.scores import two_hands
from tests.support.waiting import until
from tokenization.midi import read_midi, write_midi
from tokenization.score import Score, Track

if TYPE_CHECKING:
    from collections.abc import Iterator

    from app.server.uploads import Upload

REAL = stems.render


@contextmanager
def crowd(number: int, gate: threading.Event) -> Iterator[ThreadPoolExecutor]:
    """A pool of threads that also ends when the test fails."""
    with ThreadPoolExecutor(number) as threads:
        try:
            yield threads
        finally:
            gate.set()


@pytest.fixture
def held(studio, monkeypatch):
    """A studio that renders sound once a gate is set, the gate, and renderings by folder."""
    gate, made = threading.Event(), Counter()

    def slow(score, folder, name, **how):
        assert gate.wait(30)
        made[folder] += 1
        return silent_stems(score, folder, name, **how)

    monkeypatch.setattr(stems, "render", slow)
    yield studio, gate, made
    gate.set()


def test_many_requests_for_sound_leave_threads_for_the_page_and_places_for_others(held, midi):
    studio, gate, _ = held
    upload = read_upload(midi, 100_000, studio.models)
    most, of_session = 25, 8
    greedy = [studio.opened("greedy", upload) for _ in range(of_session + 2)]
    others = [studio.opened(f"other {number}", upload) for number in range(most)]
    with crowd(len(greedy) + len(others), gate) as threads:

        def request(jobs):
            return [threads.submit(studio.file, job.id, PROMPT_ALONE, "flac") for job in jobs]

        works = request(greedy)
        until(lambda: sum(work.done() for work in works) == 2)
        works += request(others)
        until(lambda: sum(work.done() for work in works) == len(works) - most)
        gate.set()
        errors = [error for work in works if (error := work.exception(30)) is not None]
    assert len(errors) == len(works) - most
    assert {type(error) for error in errors} == {BusyError}
    messages = sorted(map(str, errors))
    assert messages[0].startswith("The queue for sound is full: found 1 running and 24 waiting")
    assert messages[-1].startswith("This page has 8 jobs already, expected fewer than 8")
    assert studio.file(others[-1].id, PROMPT_ALONE, "flac").is_file()  # there is space again


def test_requests_for_one_sound_render_it_once(held, midi):
    """The raw sound is removed."""
    studio, gate, made = held
    job = studio.opened("me", read_upload(midi, 100_000, studio.models))
    with crowd(3, gate) as threads:
        works = [threads.submit(studio.file, job.id, PROMPT_ALONE, "flac") for _ in range(3)]
        gate.set()
        (path,) = {work.result(30) for work in works}
    assert made == {job.folder: 1}
    assert list(job.folder.iterdir()) == [path]


@pytest.fixture
def heard(model, tmp_path, monkeypatch) -> Studio:
    """A studio with real sound."""
    monkeypatch.setattr(stems, "render", partial(REAL, sample_rate=8000))
    return Studio(Models.only(model), tmp_path / "out", keep=True)


@pytest.fixture
def upload(heard, tmp_path) -> Upload:
    path = tmp_path / "two hands.mid"
    path.write_bytes(write_midi(two_hands(2)))
    return read_upload(path, 10_000, heard.models)


def test_tracks_are_muted_by_the_ids_of_the_frames(heard, upload):
    """Each id of the frames, in the prompt and in new music, is a track of the sound."""
    last = list(heard.compose("me", upload, MusicOptions(bars=2, seed=1)))[-1]
    source = heard.kept.get(last["job"])[1].sound(0)
    rendered = stems.render(source.score, source.folder, "stems", ids=source.ids)
    ids = [frame["id"] for frame in upload.prompt_frame()["tracks"]]
    new = [frame["id"] for frame in last["variations"][0]["tracks"]]
    assert list(rendered.tracks) == sorted({*ids, *new})
    left = sum(rendered.tracks[number].astype(np.int64) for number in {*ids, *new} - {0})
    mixed, _ = soundfile.read(heard.file(last["job"], 0, "wav", {0}), dtype="int16")
    np.testing.assert_array_equal(mixed, left)
    # frames are ordered by their first notes, tracks of the file by their first tokens
    rows = ((48, 60, 0), (0, 36, 33), (24, 72, 0))
    tracks = [Track.of([(onset, 12, pitch, 80)], program) for onset, pitch, program in rows]
    score = Score(12, tuple(tracks), end_ticks=96)
    piece = Piece(b"", b"", read_midi(write_midi(score)), score, 1, 1, 3, 1.0)
    notes = {frame["id"]: frame["notes"] for frame in pack_tracks(score)}  # pyright: ignore[reportTypedDictNotRequiredAccess]
    numbers = job_audio.ids_in_frames(piece, None)
    assert sorted(numbers) == [0, 1, 2]
    for number, track in zip(numbers, piece.score.tracks, strict=True):
        assert notes[number] == pack_notes(track, 12)
