"""Many listeners at once on a rating page: no errors, and quick responses."""

from __future__ import annotations

import statistics
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from app.listening.answers import read_answers
from tests.support.listening import Caller, running, study_folder

LISTENERS = 24
pytestmark = pytest.mark.slow


class Timed(Caller):
    """A listener who notes which requests were answers and which were clips."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.kinds: list[str] = []

    def call(self, method, path, content=None):
        self.kinds.append("clips" if path.startswith("/clips") else path)
        return super().call(method, path, content)


def test_24_listeners_at_once(tmp_path):
    """They go through the whole test without pauses, and load all clips, of 20 s in stereo."""
    folder = study_folder(tmp_path / "study", seconds=20.0, rate=44_100, channels=2, prompts=4)
    with running(folder) as page:
        before = page.memory
        listeners = [Timed(page.address) for _ in range(LISTENERS)]
        together = threading.Barrier(LISTENERS)

        def listen(listener):
            together.wait()
            listener.join()
            listener.go_through(lambda _: 3, clips=True)

        began = time.perf_counter()
        with ThreadPoolExecutor(LISTENERS) as threads:
            list(threads.map(listen, listeners))
        seconds = time.perf_counter() - began
        after = page.memory
    for listener in listeners:
        listener.close()
    answers = read_answers(folder)
    assert len(answers) == sum(len(listener.acknowledged) for listener in listeners)
    assert len({answer.listener for answer in answers}) == LISTENERS
    found = {}
    for kind in ("/answers", "clips"):
        times = [
            second
            for listener in listeners
            for second, called in zip(listener.seconds, listener.kinds, strict=True)
            if called == kind
        ]
        found[kind] = len(times), statistics.median(times), statistics.quantiles(times, n=20)[-1]
    (count, median, p95), (clips, clip_median, clip_p95) = found.values()
    print(  # noqa: T201 - the figures
        f"\n{LISTENERS} listeners in {seconds:.0f} s: {count} answers, {count / seconds:.0f}/s, "
        f"median {1000 * median:.0f} ms, 95 % within {1000 * p95:.0f} ms; {clips} clips, median "
        f"{1000 * clip_median:.0f} ms, 95 % within {1000 * clip_p95:.0f} ms; memory "
        f"{before / 1000:.0f} to {after / 1000:.0f} MB"
    )
    assert p95 < 5
    assert after - before < 200_000
