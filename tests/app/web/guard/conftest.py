"""A page behind its guard."""

from __future__ import annotations

import pytest

from tests.support.guarded import LARGEST, client_of, guarded_page


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("music")
    with guarded_page(folder, max_upload_bytes=LARGEST, root_path="/music") as page:
        yield page


@pytest.fixture
def client(page):
    return client_of(page.guard)
