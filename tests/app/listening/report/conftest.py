"""The report on the answers of twelve listeners, one of whom heard little."""

import pytest

from app.listening.report.judgements import read_test
from app.listening.report.options import ReportOptions
from app.listening.report.report import make_report
from tests.support.blind_studies import answer_all, write_study

EVIL = 'a<b>&"c"'
"""Name of a condition."""


@pytest.fixture(scope="session")
def answered(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    write_study(folder, (EVIL, "real", "shuffled notes"), prompts=3)
    answer_all(folder, {"real": 1.0, "shuffled notes": -1.5})
    return read_test(folder)


@pytest.fixture(scope="session")
def report(answered):
    return make_report(answered, ReportOptions(draws=200))
