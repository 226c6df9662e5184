"""The report on the answers of twelve listeners, one of whom is careless."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from app.listening.report.judgements import read_test
from app.listening.report.report import Report, ReportOptions, make_report
from tests.support.blind_studies import write_listeners, write_study

if TYPE_CHECKING:
    from app.listening.report.judgements import Test

EVIL = 'a<b>&"c"'
"""Name of a condition."""


@pytest.fixture(scope="session")
def answered(tmp_path_factory: pytest.TempPathFactory) -> Test:
    folder = tmp_path_factory.mktemp("study")
    write_study(folder, (EVIL, "real", "shuffled notes"), prompts=3, repetitions=2)
    write_listeners(folder)
    return read_test(folder)


@pytest.fixture(scope="session")
def report(answered: Test) -> Report:
    return make_report(answered, ReportOptions(draws=200))
