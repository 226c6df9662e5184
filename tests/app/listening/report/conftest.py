"""The report on the answers of twelve listeners, one of whom is careless."""

import pytest

from app.listening.report.judgements import read_test
from app.listening.report.report import ReportOptions, make_report
from tests.support.blind_studies import write_listeners, write_study

EVIL = 'a<b>&"c"'
"""Name of a condition."""


@pytest.fixture(scope="session")
def answered(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    write_study(folder, (EVIL, "real", "shuffled notes"), prompts=3, repetitions=2)
    write_listeners(folder)
    return read_test(folder)


@pytest.fixture(scope="session")
def report(answered):
    return make_report(answered, ReportOptions(draws=200))
