from collections import Counter
from dataclasses import replace

import pytest

from app.batch.listening import ListeningConfig
from app.listening.page.clips import read_material
from app.listening.page.trials import trials_of
from tests.support.listening import study_folder

LISTENERS = 48  # a multiple of the rows of the squares of 4 conditions, 6 pairs and 2 prompts


@pytest.fixture(scope="module")
def material(tmp_path_factory):
    return read_material(study_folder(tmp_path_factory.mktemp("study") / "a", repetitions=2))


def with_settings(material, **changed):
    listening = ListeningConfig(**changed)
    return replace(material, listening=listening)


def counted(trial):
    """Whether a trial belongs to the balanced design."""
    return trial.kind != "training" and not trial.expected and trial.repeats is None


def test_each_condition_and_pair_of_conditions_is_equally_often_judged(material):
    few = with_settings(material, ratings=3, preferences=4)
    rated, compared, first = Counter(), Counter(), Counter()
    for number in range(LISTENERS):
        for trial in filter(counted, trials_of(few, number)):
            cells = [
                (few.rows[file].condition, few.rows[file].prompt)
                for file in (trial.first, trial.second)
                if file
            ]
            if trial.second:
                compared[frozenset(cells)] += 1
                first[tuple(cells)] += 1
                assert cells[0][1] == cells[1][1]
            else:
                rated[cells[0]] += 1
    assert (len(rated), set(rated.values())) == (8, {3 * LISTENERS // 8})
    assert (len(compared), set(compared.values())) == (12, {4 * LISTENERS // 12})
    assert len(first) == 24
    assert max(first.values()) - min(first.values()) <= 2


def test_repetitions_take_turns(material):
    heard = Counter(
        trial.first
        for number in range(LISTENERS)
        for trial in filter(counted, trials_of(material, number))
    )
    for name in ("piano", "shuffled bars"):
        found = [heard[row.file] for row in material.rows.values() if row.condition == name]
        assert len(found) == 4
        assert max(found) - min(found) <= 0.25 * max(found), (name, found)


def test_a_listener_gets_the_trials_that_the_settings_ask_for(material):
    chosen = with_settings(material, ratings=5, preferences=6, training=2, attention=3, repeated=3)
    for number in range(6):
        trials = trials_of(chosen, number)
        assert trials == trials_of(chosen, number)
        kinds = Counter((trial.kind, bool(trial.second)) for trial in trials if counted(trial))
        assert kinds == {("rating", False): 5, ("preference", True): 6}
        practice = [bool(trial.second) for trial in trials if trial.kind == "training"]
        assert sorted(practice) == [False, False, True, True]
        assert sum(bool(trial.expected) for trial in trials) == 3
        assert sum(trial.repeats is not None for trial in trials) == 3
        sorts = [bool(trial.second) for trial in trials]
        assert sorts in (sorted(sorts), sorted(sorts)[::-1])
        assert sorts[0] == bool(number % 2)


def test_repeated_pairs_are_exchanged_and_attention_trials_have_an_expected_answer(material):
    chosen = with_settings(material, attention=4, repeated=4)
    for number in range(12):
        trials = trials_of(chosen, number)
        for at, trial in enumerate(trials, 1):
            if trial.repeats is not None:
                earlier = trials[trial.repeats - 1]
                assert trial.repeats < at
                assert counted(earlier)
                assert trial.kind == earlier.kind
                wanted = (earlier.second, earlier.first) if trial.second else (earlier.first, "")
                assert (trial.first, trial.second) == wanted
                assert not trial.expected
            sides = {trial.expected, trial.side_with_tones}
            if trial.expected and trial.second:
                assert sides == {"first", "second"}
            else:
                assert sides == ({"1", "first"} if trial.expected else {"", None})


def test_there_are_no_more_trials_than_combinations_and_one_condition_has_no_pairs(material):
    trials = trials_of(with_settings(material, ratings=100, preferences=0, repeated=0), 0)
    assert Counter(trial.kind for trial in trials if counted(trial)) == {"rating": 8}
    assert not [trial for trial in trials if trial.second]
    alone = replace(material, conditions=("piano",))
    assert not [trial for trial in trials_of(alone, 0) if trial.second]
