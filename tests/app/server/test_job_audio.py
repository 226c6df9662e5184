"""The sound of jobs: rendered once, in turn, within limits of threads and space."""

from __future__ import annotations

import threading
import time
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
from app.files import RAW_SOUND
from app.server import job_audio
from app.server.job import PROMPT_ALONE
from app.server.job_audio import SoundService
from app.server.studio import Studio
from app.server.uploads import read_upload
from app.web.cards import card
from tests.support.fakes import silent_stems
from tests.support.scores import two_hands
from tokenization.midi import write_midi

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from app.server.uploads import Upload

REAL = stems.render


def until(condition):
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


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


def test_seventy_requests_for_sound_leave_threads_for_the_page(held, midi):
    studio, gate, _ = held
    upload = read_upload(midi, 100_000, studio.models)
    jobs = [studio.opened(f"session {number}", upload) for number in range(70)]
    with crowd(70, gate) as threads:
        works = [threads.submit(studio.mix, job.id, PROMPT_ALONE, ()) for job in jobs]
        until(lambda: sum(work.done() for work in works) == 70 - job_audio.MOST_CALLS)
        gate.set()
        errors = [work.exception(30) for work in works]
    refused = [error for error in errors if error is not None]
    assert len(refused) == 70 - job_audio.MOST_CALLS
    assert {type(error) for error in refused} == {SoundError}
    assert str(refused[0]).startswith("too many requests for sound: found 24, 0 of this session")
    assert studio.sounds._calls == Counter()
    assert studio.mix(jobs[-1].id, PROMPT_ALONE, ())[0].is_file()  # there is space again


def test_one_page_does_not_delay_the_sound_of_others(held, midi):
    studio, gate, _ = held
    upload = read_upload(midi, 100_000, studio.models)
    jobs = [studio.opened("greedy", upload) for _ in range(30)]
    with crowd(40, gate) as threads:
        works = [threads.submit(studio.mix, job.id, PROMPT_ALONE, ()) for job in jobs]
        most = job_audio.MOST_CALLS_OF_SESSION
        until(lambda: sum(work.done() for work in works) == 30 - most)
        other = threads.submit(studio.mix, studio.opened("other", upload).id, PROMPT_ALONE, ())
        gate.set()
        assert other.result(30)[0].is_file()
        assert sum(work.exception(30) is None for work in works) == most


def test_concurrent_requests_for_one_sound_render_it_once(held, midi):
    """Three calls with different mutes take one turn."""
    studio, gate, made = held
    job = studio.opened("me", read_upload(midi, 100_000, studio.models))
    with crowd(3, gate) as threads:
        works = [
            threads.submit(studio.mix, job.id, PROMPT_ALONE, mute) for mute in ((), (0,), (1,))
        ]
        until(lambda: studio.sounds._calls["me"] == 3)
        assert studio.sounds._queue.counts == (1, 0)
        gate.set()
        assert len({work.result(30) for work in works}) == 3
    assert made == {job.folder: 1}


def test_concurrent_requests_share_an_error_and_the_next_one_succeeds():
    calls, gate = SoundService(list), threading.Event()

    def fail():
        assert gate.wait(30)
        raise SoundError("it is too long")

    with crowd(3, gate) as threads:
        works = [threads.submit(calls.once, "me", "key", fail) for _ in range(3)]
        until(lambda: all(work.running() for work in works))
        time.sleep(0.05)
        gate.set()
        assert [str(work.exception(30)) for work in works] == ["it is too long"] * 3
    done = []
    calls.once("me", "key", lambda: done.append(True))
    assert done
    assert not calls._coming


def test_leaving_cancels_only_the_requests_of_the_session():
    calls, made = SoundService(list), []
    with ThreadPoolExecutor(4) as threads, ExitStack() as first:
        first.enter_context(calls.turn(lambda: False))
        works = {
            who: threads.submit(calls.once, who[:5], who, lambda who=who: made.append(who))
            for who in ("leave", "stays")
        }
        works["leave, too"] = threads.submit(calls.once, "leave", "leave", lambda: None)
        until(lambda: calls._queue.counts == (1, 2))
        calls.leave("leave")
        for who in ("leave", "leave, too"):
            with pytest.raises(LookupError, match="the page was closed"):
                works[who].result(10)
        assert not works["stays"].done()
        first.close()
        works["stays"].result(10)
    assert made == ["stays"]
    assert calls._queue.counts == (0, 0)


def test_a_closed_page_gives_up_its_place_in_the_queue(held, midi):
    studio, gate, made = held
    upload = read_upload(midi, 100_000, studio.models)
    jobs = [studio.opened(session, upload) for session in ("first", "leaves")]
    with crowd(2, gate) as threads:
        works = [threads.submit(studio.mix, job.id, PROMPT_ALONE, ()) for job in jobs[:1]]
        until(lambda: studio.sounds._queue.counts == (1, 0))
        works.append(threads.submit(studio.mix, jobs[1].id, PROMPT_ALONE, ()))
        until(lambda: studio.sounds._queue.counts == (1, 1))
        studio.leave("leaves")
        with pytest.raises(LookupError):
            works[1].result(10)
        assert not works[0].done()
    assert len(made) == 1


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
    job = played(heard, upload)
    assert len(raw_of(tmp_path)) == 1
    monkeypatch.setattr(job_audio, "RAW_SECONDS", 0.0)
    time.sleep(0.01)
    heard.sounds.tidy()
    assert raw_of(tmp_path) == []
    whole, _ = heard.mix(job, PROMPT_ALONE, ())  # its file exists
    assert raw_of(tmp_path) == []
    muted, _ = soundfile.read(heard.mix(job, PROMPT_ALONE, {0})[0])
    assert muted.any()
    assert (muted != soundfile.read(whole)[0]).any()
    archive = heard.file(job, PROMPT_ALONE, "stems")
    heard.sounds.tidy()
    assert heard.file(job, PROMPT_ALONE, "stems") == archive


def test_unused_raw_sound_is_dropped_after_a_while(heard, upload, tmp_path, monkeypatch):
    monkeypatch.setattr(job_audio, "RAW_SECONDS", 0.1)
    played(heard, upload)
    assert len(raw_of(tmp_path)) == 1
    until = time.monotonic() + 10
    while raw_of(tmp_path):
        assert time.monotonic() < until
        time.sleep(0.01)
    assert heard.sounds._timer is None or not heard.sounds._timer.finished.wait(0)


@pytest.mark.parametrize("limit", ["MOST_RAW_OF_SESSION", "MOST_RAW"])
def test_raw_sound_is_limited_in_size_and_the_newest_is_kept(
    heard, upload, tmp_path, monkeypatch, limit
):
    first = played(heard, upload)
    (size,) = [raw.size for raw in heard.kept.get(first)[1].sound.raw.values()]
    assert size > 100_000
    monkeypatch.setattr(job_audio, limit, int(2.5 * size))
    sessions = ["me", "me", "you"] if limit == "MOST_RAW_OF_SESSION" else ["me", "you", "them"]
    jobs = [first, *(played(heard, upload, session) for session in sessions)]
    has_raw = [bool(heard.kept.get(job)[1].sound.raw) for job in jobs]
    by_session = limit == "MOST_RAW_OF_SESSION"
    assert has_raw == ([False, True, True, True] if by_session else [False, False, True, True])
    monkeypatch.setattr(job_audio, limit, 1)
    newest = played(heard, upload)
    assert heard.kept.get(newest)[1].sound.raw


def test_sound_of_new_pieces_counts_towards_the_limits(heard, tmp_path, monkeypatch):
    monkeypatch.setattr(job_audio, "MOST_RAW_OF_SESSION", 1)
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
    job = heard.opened("me", read_upload(path, 10_000, heard.models)).id
    whole, begin = heard.mix(job, PROMPT_ALONE, ())
    assert begin == 0
    part, begin = heard.mix(job, PROMPT_ALONE, (), 22.9)
    assert begin == 20
    assert heard.mix(job, PROMPT_ALONE, (), 21.0) == (part, 20)  # shared
    assert soundfile.info(part).duration == pytest.approx(soundfile.info(whole).duration - 20)
    muted, begin = heard.mix(job, PROMPT_ALONE, {0}, 20)
    assert begin == 20
    assert soundfile.info(muted).duration == pytest.approx(soundfile.info(part).duration)
    for second in (-1e300, 1e300):
        assert 0 <= heard.mix(job, PROMPT_ALONE, (), second)[1] < soundfile.info(whole).duration


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
    assert f"leaves out {round(begin / 60)} min of silence" in card(upload, "")


def test_the_sound_of_a_job_is_that_of_its_new_music(heard, tmp_path):
    path = tmp_path / "long.mid"
    path.write_bytes(write_midi(two_hands(24)))
    upload = read_upload(path, 10_000, heard.models)
    options, sounds = MusicOptions(bars=2, seed=1), []
    for whole in (False, True):
        frame = list(heard.compose("me", upload, options, whole_sound=whole))[-1]
        (row,) = frame["variations"]
        sounds.append((row["audio_from"], soundfile.info(row["audio"]).duration))
    splice = float(upload.prompt.score.seconds_at(upload.prompt.splice_ticks))
    (begin, part), (start, all_of_it) = sounds
    assert start == 0
    assert splice - 15 < begin <= splice - 10
    assert part == pytest.approx(all_of_it - begin)
    assert heard._sound_speed["fake"].value
