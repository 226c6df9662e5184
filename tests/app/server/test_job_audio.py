"""The sound of jobs: rendered once, in turn, within limits of threads and space."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pytest
import soundfile

from app.audio import stems
from app.audio.synth.soundfont import SoundError
from app.compose.models import Models
from app.compose.options import MusicOptions
from app.compose.piece import Piece
from app.files import RAW_SOUND
from app.player.frames import pack_notes, pack_tracks
from app.server import job_audio
from app.server.job import PROMPT_ALONE
from app.server.studio import Studio
from app.server.uploads import read_upload
from app.web.cards import card
from tests.support.fakes import silent_stems
from tests.support.scores import two_hands
from tests.support.waiting import until
from tokenization.midi import read_midi, write_midi
from tokenization.score import Score, Track

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

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
    most, of_session = job_audio.MOST_CALLS, job_audio.MOST_CALLS_OF_SESSION
    greedy = [studio.opened("greedy", upload) for _ in range(of_session + 2)]
    others = [studio.opened(f"other {number}", upload) for number in range(most)]
    with crowd(len(greedy) + len(others), gate) as threads:

        def request(jobs):
            return [threads.submit(studio.mix, job.id, PROMPT_ALONE, ()) for job in jobs]

        works = request(greedy)
        until(lambda: sum(work.done() for work in works) == 2)
        works += request(others)
        until(lambda: sum(work.done() for work in works) == len(works) - most)
        gate.set()
        errors = [error for work in works if (error := work.exception(30)) is not None]
    assert len(errors) == len(works) - most
    assert {type(error) for error in errors} == {SoundError}
    messages = sorted(map(str, errors))
    assert messages[0].startswith("too many requests for sound: found 24, 0 of this session")
    assert messages[-1].startswith("too many requests for sound: found 8, 8 of this session")
    assert not studio.sounds._calls
    assert studio.mix(others[-1].id, PROMPT_ALONE, ())[0].is_file()  # there is space again


def test_requests_for_one_sound_render_it_once_and_end_with_their_session(held, midi):
    """Calls with different mutes, which wait in one queue with those of another session."""
    studio, gate, made = held
    upload = read_upload(midi, 100_000, studio.models)
    jobs = {who: studio.opened(who, upload) for who in ("leaves", "stays")}
    with crowd(6, gate) as threads, ExitStack() as first:
        first.enter_context(studio.sounds.turn(lambda: False))
        leave, stay = (
            [threads.submit(studio.mix, job.id, PROMPT_ALONE, mute) for mute in ((), (0,), (1,))]
            for job in jobs.values()
        )
        until(lambda: studio.sounds._queue.counts == (1, 6))
        studio.leave("leaves")
        for work in leave:
            with pytest.raises(LookupError, match="the page was closed"):
                work.result(10)
        assert not any(work.done() for work in stay)
        first.close()
        gate.set()
        assert len({work.result(30) for work in stay}) == 3
    assert made == {jobs["stays"].folder: 1}
    assert studio.sounds._queue.counts == (0, 0)


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


def raw_of(folder: Path) -> list[Path]:
    return list(folder.rglob(f"{RAW_SOUND}*"))


def played(studio: Studio, upload: Upload, session: str = "me") -> str:
    """The job that plays an upload, by id."""
    job = studio.opened(session, upload).id
    studio.mix(job, PROMPT_ALONE, ())
    return job


def test_a_mute_works_after_the_raw_sound_was_dropped(heard, upload, tmp_path, monkeypatch):
    monkeypatch.setattr(job_audio, "RAW_SECONDS", 0.02)
    job = played(heard, upload)
    until(lambda: not raw_of(tmp_path))  # unused
    until(lambda: heard.sounds._timer is None or heard.sounds._timer.finished.is_set())
    monkeypatch.setattr(job_audio, "RAW_SECONDS", 300.0)
    whole, _ = heard.mix(job, PROMPT_ALONE, ())  # its file exists
    assert raw_of(tmp_path) == []
    muted, _ = soundfile.read(heard.mix(job, PROMPT_ALONE, {0})[0])
    assert len(raw_of(tmp_path)) == 1
    assert muted.any()
    assert (muted != soundfile.read(whole)[0]).any()
    archive = heard.file(job, PROMPT_ALONE, "stems")
    monkeypatch.setattr(job_audio, "RAW_SECONDS", -1.0)
    heard.sounds.tidy()
    assert raw_of(tmp_path) == []
    assert heard.file(job, PROMPT_ALONE, "stems") == archive


def test_raw_sound_is_limited_in_size_and_the_newest_is_kept(heard, upload, tmp_path, monkeypatch):
    first = played(heard, upload)
    (size,) = [raw.size for raw in heard.kept.get(first)[1].sound.raw.values()]
    assert size > 100_000
    monkeypatch.setattr(job_audio, "MOST_RAW_OF_SESSION", int(2.5 * size))
    monkeypatch.setattr(job_audio, "MOST_RAW", int(4.5 * size))
    jobs = [first, *(played(heard, upload, session) for session in ("me", "me", "you"))]

    def has_raw():
        return [bool(heard.kept.get(job)[1].sound.raw) for job in jobs]

    assert has_raw() == [False, True, True, True]
    jobs += [played(heard, upload, session) for session in ("you", "them")]
    assert has_raw() == [False, False, True, True, True, True]
    monkeypatch.setattr(job_audio, "MOST_RAW", 1)
    jobs.append(played(heard, upload))
    assert has_raw() == [False] * 6 + [True]
    # new pieces count as well
    last = list(heard.compose("me", None, MusicOptions(bars=1, seed=1, variations=3)))[-1]
    assert [row["sound"] for row in last["variations"]] == ["ready"] * 3
    assert len(raw_of(tmp_path)) == 1
    assert heard.mix(last["job"], 0, {0})[0].is_file()


@pytest.mark.parametrize("how", ["forgotten", "left", "the end", "late"])
def test_raw_sound_that_is_no_longer_needed_is_removed(heard, upload, tmp_path, monkeypatch, how):
    job = played(heard, upload)
    found = heard.kept.get(job)[1]
    if how == "forgotten":
        monkeypatch.setattr("app.server.store.MOST_OF_SESSION", 1)
        heard.opened("me", upload)
    elif how == "left":
        heard.leave("me")
    elif how == "the end":
        heard.stop_all()
    else:  # it was dropped while its sound was being rendered
        heard.kept._jobs.clear()
        heard.sounds.rendered(found.sound)
    assert raw_of(tmp_path) == []
    assert found.sound.find(PROMPT_ALONE, "flac") is not None


def test_sound_begins_shortly_before_the_second_that_is_asked_for(heard, tmp_path):
    path = tmp_path / "long.mid"
    path.write_bytes(write_midi(two_hands(24)))
    upload = read_upload(path, 10_000, heard.models)
    job = heard.opened("me", upload).id
    whole, begin = heard.mix(job, PROMPT_ALONE, ())
    assert begin == 0
    part, begin = heard.mix(job, PROMPT_ALONE, (), 22.9)
    assert begin == 20
    assert heard.mix(job, PROMPT_ALONE, (), 21.0) == (part, 20)  # shared
    seconds = soundfile.info(whole).duration
    assert soundfile.info(part).duration == pytest.approx(seconds - 20)
    muted, begin = heard.mix(job, PROMPT_ALONE, {0}, 20)
    assert begin == 20
    assert soundfile.info(muted).duration == pytest.approx(seconds - 20)
    for second in (-1e300, 1e300):
        assert 0 <= heard.mix(job, PROMPT_ALONE, (), second)[1] < seconds


def test_a_long_silence_before_the_first_note_is_left_out(heard, tmp_path):
    music = two_hands(2)
    late = music.with_tracks(
        track.with_tables(notes=np.add(track.notes, [music.ticks_per_beat * 2400, 0, 0, 0]))
        for track in music.tracks
    )
    path = tmp_path / "late.mid"
    path.write_bytes(write_midi(late))
    upload = read_upload(path, 10_000, heard.models)
    path, begin = heard.mix(heard.opened("me", upload).id, PROMPT_ALONE, ())
    first = float(upload.score.seconds_at(min(t.notes[0, 0] for t in upload.score.tracks)))
    assert first > 600
    assert first - 6 <= begin <= first - 1
    assert soundfile.info(path).duration < 30
    assert f"leaves out {round(begin / 60)} min of silence" in card(upload)


def test_tracks_are_muted_by_the_ids_of_the_frames(heard, upload):
    """Each id of the frames, in the prompt and in new music, is a track of the sound."""
    last = list(heard.compose("me", upload, MusicOptions(bars=2, seed=1)))[-1]
    sound = heard.kept.get(last["job"])[1].sound
    stems_of_piece = sound.render(0)
    ids = [frame["id"] for frame in upload.prompt_frame()["tracks"]]
    new = [frame["id"] for frame in last["variations"][0]["tracks"]]
    assert list(stems_of_piece.tracks) == sorted({*ids, *new})
    left = sum(stems_of_piece.tracks[number].astype(np.int64) for number in {*ids, *new} - {0})
    mixed, _ = soundfile.read(sound.file(0, "wav", {0}), dtype="int16")
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
