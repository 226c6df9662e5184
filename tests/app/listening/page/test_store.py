import csv
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta

import pytest

from app.errors import CommandError
from app.listening.answers import Answer, read_answers
from app.listening.page.store import NoListenerError, PastTrialError, Store
from app.listening.page.trials import Trial

PLAN = [Trial("rating", "midi/a.mid"), Trial("preference", "midi/a.mid", "midi/b.mid")]


def plan(number):
    return [Trial("rating", f"midi/{number}.mid"), *PLAN]


def rated(code, number, value="3"):
    def make(trial, now):
        return Answer(
            listener=code,
            trial=number,
            kind=trial.kind,
            question="coherence",
            first=trial.first,
            answer=value,
            heard_first=1.0,
            seconds=2.0,
            answered_at=now,
        )

    return make


def asked(trial):
    return ("preference",) if trial.second else ("coherence",)


@pytest.fixture
def store(tmp_path):
    with closing(Store(tmp_path)) as store:
        yield store


def test_a_listener_goes_through_their_trials(store, tmp_path):
    code = store.join(plan, "DONE")
    assert store.listener(code).completion_code == "DONE"
    assert store.listener(code).trials == tuple(plan(0))
    with pytest.raises(PastTrialError):  # not answered
        store.advance(code, 1, asked)
    store.answer(code, 1, rated(code, 1))
    store.answer(code, 1, rated(code, 1, "5"))
    assert store.listener(code).answers["coherence"].answer == "5"
    store.advance(code, 1, asked)
    store.advance(code, 1, asked)  # a second request after a lost reply
    assert store.listener(code).position == 2
    for wrong in (1, 3):
        with pytest.raises(PastTrialError):
            store.answer(code, wrong, rated(code, wrong))
    assert [answer.answer for answer in read_answers(tmp_path)] == ["5"]


def test_the_test_is_complete_after_the_last_trial_and_exported(store, tmp_path):
    code = store.join(lambda _: PLAN[:1], None)
    store.answer(code, 1, rated(code, 1))
    assert store.counts() == (1, 0)
    store.advance(code, 1, asked)
    assert store.counts() == (1, 1)
    assert store.listener(code).trial is None
    completion = store.listener(code).completion_code
    assert len(completion) == 8
    with pytest.raises(PastTrialError):
        store.answer(code, 2, rated(code, 2))
    store.export()
    rows = csv.DictReader((tmp_path / "answers.csv").read_text().splitlines())
    assert [(row["listener"], row["answer"]) for row in rows] == [(code, "3")]
    (person,) = csv.DictReader((tmp_path / "listeners.csv").read_text().splitlines())
    assert list(person) == ["listener", "joined_at", "completed_at", "completion_code"]
    assert (person["listener"], person["completion_code"]) == (code, completion)


def test_an_unknown_code_and_another_file_are_refused(store, tmp_path):
    for call in (
        lambda: store.listener("nobody22"),
        lambda: store.answer("nobody22", 1, rated("nobody22", 1)),
        lambda: store.advance("nobody22", 1, asked),
    ):
        with pytest.raises(NoListenerError):
            call()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "answers.sqlite").write_bytes(b"something else" * 100)
    with pytest.raises(CommandError, match="the database of answers cannot be used"):
        Store(tmp_path / "other")


def number_of(store, code):
    return int(store.listener(code).trials[0].first.removeprefix("midi/").removesuffix(".mid"))


def test_listeners_get_different_numbers_also_at_once(store):
    with ThreadPoolExecutor(8) as threads:
        codes = list(threads.map(lambda _: store.join(plan, None), range(40)))
    assert Counter(number_of(store, code) for code in codes) == Counter(range(40))


def test_a_new_listener_replaces_one_who_gave_up(store, monkeypatch):
    first, second, third = (store.join(plan, None) for _ in range(3))
    for trial in (1, 2):
        store.answer(second, trial, rated(second, trial))
        store.advance(second, trial, asked)
    store.advance(second, 3, lambda _: ())  # complete
    monkeypatch.setattr("app.listening.page.store.ABANDONED", timedelta(seconds=-1))
    store.answer(third, 1, rated(third, 1))
    assert number_of(store, store.join(plan, None)) == 0
    monkeypatch.undo()
    assert number_of(store, store.join(plan, None)) == 3
    assert number_of(store, first) == 0  # who may still come back
