"""Many who want sound at once: none takes all threads of the page, and nothing is made twice."""

from __future__ import annotations

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import pytest

from app.audio import stems
from app.audio.synth.soundfont import SoundError
from app.server import sound_calls
from app.server.job import PROMPT_ALONE
from app.server.sound_calls import SoundCalls
from app.server.uploads import read_upload
from tests.support.fakes import silent_stems

if TYPE_CHECKING:
    from collections.abc import Iterator


def until(condition):
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


@contextmanager
def crowd(number: int, gate: threading.Event) -> Iterator[ThreadPoolExecutor]:
    """So many threads, which a test that fails leaves as well."""
    with ThreadPoolExecutor(number) as threads:
        try:
            yield threads
        finally:
            gate.set()


@pytest.fixture
def held(studio, monkeypatch):
    """A studio whose sound is made when the gate is set, the gate, and the names of what was."""
    gate, made = threading.Event(), Counter()

    def slow(score, folder, name, **how):
        assert gate.wait(30)
        made[folder] += 1
        return silent_stems(score, folder, name, **how)

    monkeypatch.setattr(stems, "render", slow)
    yield studio, gate, made
    gate.set()


def test_seventy_who_want_sound_leave_the_page_its_threads(held, midi):
    studio, gate, _ = held
    upload = read_upload(midi, 100_000, studio.models)
    jobs = [studio.opened(f"session {number}", upload) for number in range(70)]
    with crowd(70, gate) as threads:
        works = [threads.submit(studio.mix, job.id, PROMPT_ALONE, ()) for job in jobs]
        until(lambda: sum(work.done() for work in works) == 70 - sound_calls.MOST_CALLS)
        gate.set()
        errors = [work.exception(30) for work in works]
    refused = [error for error in errors if error is not None]
    assert len(refused) == 70 - sound_calls.MOST_CALLS
    assert {type(error) for error in refused} == {SoundError}
    assert str(refused[0]).startswith("too many wait for sound: found 24 calls, 0 of this page")
    assert studio._sounds._calls == Counter()
    assert studio.mix(jobs[-1].id, PROMPT_ALONE, ()).is_file()  # there is room again


def test_one_page_does_not_take_the_turns_of_others(held, midi):
    studio, gate, _ = held
    upload = read_upload(midi, 100_000, studio.models)
    jobs = [studio.opened("greedy", upload) for _ in range(30)]
    with crowd(40, gate) as threads:
        works = [threads.submit(studio.mix, job.id, PROMPT_ALONE, ()) for job in jobs]
        most = sound_calls.MOST_CALLS_OF_SESSION
        until(lambda: sum(work.done() for work in works) == 30 - most)
        other = threads.submit(studio.mix, studio.opened("other", upload).id, PROMPT_ALONE, ())
        gate.set()
        assert other.result(30).is_file()
        assert sum(work.exception(30) is None for work in works) == most


def test_what_several_want_is_made_once(held, midi):
    """Three calls with three mutes, one turn; and the sound is there for who comes later."""
    studio, gate, made = held
    job = studio.opened("me", read_upload(midi, 100_000, studio.models))
    with crowd(3, gate) as threads:
        works = [
            threads.submit(studio.mix, job.id, PROMPT_ALONE, mute) for mute in ((), (0,), (1,))
        ]
        until(lambda: studio._sounds._calls["me"] == 3)
        assert studio._sounds._line.counts == (1, 0)
        gate.set()
        assert len({work.result(30) for work in works}) == 3
    assert made == {job.folder: 1}


def test_an_error_is_that_of_all_who_wait_and_the_next_call_is_well():
    calls, gate = SoundCalls(), threading.Event()

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


def test_who_leaves_waits_no_more_and_others_do():
    calls, made = SoundCalls(), []
    with ThreadPoolExecutor(4) as threads, ExitStack() as first:
        first.enter_context(calls.turn(lambda: False))
        works = {
            who: threads.submit(calls.once, who[:5], who, lambda who=who: made.append(who))
            for who in ("leave", "stays")
        }
        works["leave, too"] = threads.submit(calls.once, "leave", "leave", lambda: None)
        until(lambda: calls._line.counts == (1, 2))
        calls.leave("leave")
        for who in ("leave", "leave, too"):
            with pytest.raises(LookupError, match="the page was left"):
                works[who].result(10)
        assert not works["stays"].done()
        first.close()
        works["stays"].result(10)
    assert made == ["stays"]
    assert calls._line.counts == (0, 0)


def test_a_page_that_is_closed_leaves_its_place_in_the_line(held, midi):
    studio, gate, made = held
    upload = read_upload(midi, 100_000, studio.models)
    jobs = [studio.opened(session, upload) for session in ("first", "leaves")]
    with crowd(2, gate) as threads:
        works = [threads.submit(studio.mix, job.id, PROMPT_ALONE, ()) for job in jobs[:1]]
        until(lambda: studio._sounds._line.counts == (1, 0))
        works.append(threads.submit(studio.mix, jobs[1].id, PROMPT_ALONE, ()))
        until(lambda: studio._sounds._line.counts == (1, 1))
        studio.leave("leaves")
        with pytest.raises(LookupError):
            works[1].result(10)
        assert not works[0].done()
    assert len(made) == 1
