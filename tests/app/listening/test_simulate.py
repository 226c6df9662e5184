"""Simulated listeners."""

import numpy as np
import pytest

from app.cli.main import main as relpe
from app.listening.answers import DATABASE, TABLE, read_answers, write_answers
from app.listening.clips import Clip
from app.listening.simulate import SimulatedListeners, is_simulated, main, simulate
from tests.support.blind_studies import write_study
from tests.support.paths import ROOT

CLIPS = [
    Clip(f"{condition}{prompt}", f"p{prompt}", condition, 16.0)
    for condition in ("low", "model", "real")
    for prompt in range(2)
]


def answers_of(**chosen):
    return simulate(CLIPS, SimulatedListeners(**chosen), 1, anchors=("low",))


def test_every_listener_does_every_trial_and_the_same_seed_gives_the_same_answers():
    answers = answers_of(count=3, repeated=2, attention=2)
    assert answers == answers_of(count=3, repeated=2, attention=2)
    assert simulate(CLIPS, SimulatedListeners(count=3), 2) != answers
    assert {a.listener for a in answers} == {"simulated-001", "simulated-002", "simulated-003"}
    assert all(is_simulated(a.listener) for a in answers)
    one = [a for a in answers if a.listener == "simulated-001"]
    counted = [a for a in one if a.kind != "training" and not a.expected and a.repeats is None]
    assert len(counted) == 6 * 4 + 6  # six clips, four questions; three pairs after two prompts
    assert len({a.trial for a in one if a.expected}) == 2
    assert len({a.trial for a in one if a.repeats}) == 4
    assert len({a.trial for a in one if a.kind == "training"}) == 1
    assert sorted({a.trial for a in one}) == list(range(1, 6 + 6 + 2 + 4 + 2))
    assert answers_of(count=5)[: len(answers_of(count=2))] == answers_of(count=2)
    careless = [a for a in answers_of(count=2, careless=1) if a.listener == "simulated-002"]
    assert max(a.heard_first for a in careless) < 0.2 * 16 + 0.01


def test_preferences_and_ratings_follow_the_qualities():
    still = {"taste": 0.0, "fit": 0.0, "clip": 0.0, "mildness": 0.0}
    answers = answers_of(count=200, qualities={"real": 1.0}, repeated=0, **still)
    pairs = [a for a in answers if a.kind == "preference" and not a.expected]
    won = [
        (a.first if a.answer == "first" else a.second)[:4] == "real"
        for a in pairs
        if ("real" in a.first) != ("real" in a.second)
    ]
    assert np.mean(won) == pytest.approx(1 / (1 + np.exp(-1)), abs=0.05)
    rated = [int(a.answer) for a in answers if a.kind == "rating" and "real" in a.first]
    assert np.mean(rated) == pytest.approx(4.0, abs=0.1)


def test_the_command_writes_a_table_and_never_over_real_answers(tmp_path, capsys):
    write_study(tmp_path)
    assert main([str(tmp_path), "--listeners", "2", "--quality", "real=1"]) == 0
    assert main([str(tmp_path), "--listeners", "3", "--seed", "2"]) == 0  # simulated ones
    answers = read_answers(tmp_path)
    write_answers(
        tmp_path / TABLE, [answers[0].__class__(**{**vars(a), "listener": "x"}) for a in answers]
    )
    before = (tmp_path / TABLE).read_bytes()
    refused(capsys, tmp_path, "found answers of listeners")
    assert (tmp_path / TABLE).read_bytes() == before
    (tmp_path / TABLE).unlink()
    (tmp_path / DATABASE).touch()
    refused(capsys, tmp_path, "found answers of listeners")
    (tmp_path / DATABASE).unlink()
    refused(capsys, tmp_path, "expected one such as piano=0.5", "--quality", "real")
    refused(capsys, tmp_path, "no such condition", "--quality", "x=1")
    refused(capsys, tmp_path, "expected a finite number", "--quality", "real=inf")
    refused(capsys, tmp_path, "--careless is 30, expected 0 to 24", "--careless", "30")
    refused(capsys, tmp_path, "--seed is -1, expected 0 or more", "--seed", "-1")


def refused(capsys, folder, said, *options):
    with pytest.raises(SystemExit) as stopped:
        main([str(folder), *options])
    assert stopped.value.code == 2
    assert said in capsys.readouterr().err


def test_the_commands_of_the_example_run(tmp_path, monkeypatch, capsys):
    """The walk-through of examples/listening/README.md, on a study without clips."""
    text = (ROOT / "examples/listening/README.md").read_text("utf-8")
    lines = [line.split() for line in text.splitlines()]
    (simulated,) = (
        line for line in lines if line[:3] == ["python", "-m", "app.listening.simulate"]
    )
    (reported,) = (line for line in lines if line[:2] == ["relpe", "listen-report"])
    conditions = ("piano", "piano-spe", "real", "shuffled bars", "shuffled notes")
    write_study(tmp_path / "study", conditions, repetitions=2)
    monkeypatch.chdir(tmp_path)
    assert main(simulated[3:]) == 0
    assert relpe(reported[1:]) == 0
    assert "2 of 16 listeners were excluded" in capsys.readouterr().out
