"""The report on the answers of twelve listeners, one of whom is careless."""

import pytest

from app.listening.report.judgements import read_test
from app.listening.report.report import ReportOptions, make_report
from app.listening.simulate import main
from tests.support.blind_studies import write_study

EVIL = 'a<b>&"c"'
"""Name of a condition."""


@pytest.fixture(scope="session")
def answered(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    write_study(folder, (EVIL, "real", "shuffled notes"), prompts=3, repetitions=2)
    assert main([str(folder), "--listeners", "12", "--careless", "1", "--quality", "real=1"]) == 0
    return read_test(folder)


@pytest.fixture(scope="session")
def report(answered):
    return make_report(answered, ReportOptions(draws=200))
