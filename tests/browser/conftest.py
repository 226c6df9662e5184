"""A browser and served pages, which all tests of this folder share."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect, sync_playwright

from app.compose.models import Models
from tests.support.bands import model_of
from tests.support.browser import PATIENCE, opened
from tests.support.harness import CHROMIUM, FLAGS
from tests.support.served import MARKS, served
from tokenization.remi.multitrack import MultitrackRemi

NEEDS_CHROMIUM = pytest.mark.skipif(
    CHROMIUM is None, reason="chromium is not installed: apt install chromium"
)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Marks the tests of this folder."""
    for mark in (*MARKS, NEEDS_CHROMIUM):
        item.add_marker(mark)


@pytest.fixture(scope="package")
def browser():
    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="package")
def running(tmp_path_factory):
    """A page with a fake model."""
    with served(tmp_path_factory.mktemp("music")) as page:
        yield page


@pytest.fixture(scope="package")
def bands(tmp_path_factory):
    """Address of a page with a small model of bands."""
    models = Models.only(model_of(MultitrackRemi()))
    with served(tmp_path_factory.mktemp("bands"), models=models) as page:
        yield page.address


@pytest.fixture
def model(running):
    """The fake model, which writes 400 notes a second until a test changes its speed."""
    running.model.speed = 400.0
    return running.model


@pytest.fixture
def page(browser, running, model):
    """A new tab of the page with the fake model."""
    with opened(browser, running.address) as tab:
        yield tab
