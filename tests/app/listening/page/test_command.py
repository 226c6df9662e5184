"""The command that serves a listening test, in a process of its own."""

import random
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import httpx
import pytest

from app.cli.main import main
from app.listening.answers import read_answers
from app.listening.page.store import Store
from tests.support.listening import Caller, running, study_folder

LISTENERS = 8


def test_a_killed_page_loses_no_answer_that_it_acknowledged(tmp_path):
    folder = study_folder(tmp_path / "study", ratings=8, preferences=12)
    enough = threading.Event()

    def listen(caller):
        draws = random.Random(caller.code)
        try:
            caller.go_through(lambda _: draws.randint(1, 5))
        except httpx.HTTPError:
            return  # the page was killed

    with running(folder) as page:
        callers = [Caller(page.address) for _ in range(LISTENERS)]
        for caller in callers:
            caller.join()
        with ThreadPoolExecutor(LISTENERS + 1) as threads:

            def kill():
                while sum(len(caller.acknowledged) for caller in callers) < 120:
                    enough.wait(0.001)
                page.process.send_signal(signal.SIGKILL)

            list(
                threads.map(lambda work: work(), [kill, *(lambda c=c: listen(c) for c in callers)])
            )
        assert page.process.wait() == -signal.SIGKILL
    acknowledged = {answer for caller in callers for answer in caller.acknowledged}
    assert min(len(caller.acknowledged) for caller in callers) > 0
    found = {
        (answer.listener, answer.trial, answer.question, answer.answer)
        for answer in read_answers(folder)
    }
    assert acknowledged <= found
    assert len(found - acknowledged) <= LISTENERS  # written, but not yet acknowledged
    with closing(Store(folder)) as store:  # all may continue where they stopped
        for caller in callers:
            trials = {trial for _, trial, _, _ in caller.acknowledged}
            assert store.listener(caller.code).position in (max(trials), max(trials) + 1)


@pytest.mark.slow
def test_the_answers_are_exported_when_the_page_is_stopped(tmp_path):
    folder = study_folder(tmp_path / "study", ratings=2, preferences=2)
    with running(folder) as page:
        for _ in range(2):
            caller = Caller(page.address)
            caller.join()
            caller.go_through(lambda _: 3, clips=True)
            caller.close()
        page.process.send_signal(signal.SIGINT)
        _, said = page.process.communicate()
        assert page.process.returncode == 0
    assert b"2 listeners, of whom 2 completed the test" in said
    rows = (folder / "answers.csv").read_text().splitlines()
    assert len(rows) == 1 + len(read_answers(folder))


def test_answers_are_exported_without_serving_and_what_is_no_study_is_refused(tmp_path, capsys):
    folder = study_folder(tmp_path / "study")
    assert main(["listen", str(folder), "--export"]) == 0
    assert "0 listeners" in capsys.readouterr().err
    assert (folder / "answers.csv").read_text().startswith("listener,trial,kind,question")
    assert main(["listen", str(tmp_path), "--export"]) == 2
    assert f"relpe: {tmp_path}: found no study.yaml" in capsys.readouterr().err
    study = folder / "study.yaml"
    study.write_text(study.read_text().replace("heard: 0.9", "heard: 2"))
    assert main(["listen", str(folder), "--export"]) == 2
    assert "study.yaml: listening: heard is 2" in capsys.readouterr().err
