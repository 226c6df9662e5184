from __future__ import annotations

import re
from html import unescape
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from app.listening.report.findings import findings
from app.listening.report.pages.page import as_page


class _Page(HTMLParser):
    """Checks that all elements are closed, and collects what a page names."""

    void = frozenset({"meta", "br"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.names: set[str] = set()
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.ids += [value for name, value in attrs if name == "id" and value]
        if tag not in self.void:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def text(report):
    return as_page(report)


def test_the_page_is_whole_and_loads_nothing(text):
    page = _Page()
    page.feed(text)
    assert page.open == []
    assert len(page.ids) == len(set(page.ids))
    assert not page.names & {"script", "link", "img", "iframe", "object"}
    assert not re.search(r"https?:|url\(|@import|src=|href=", text)
    assert 'a<b>&"c"' not in text
    assert "a&lt;b&gt;&amp;&#34;c&#34;" in text


def test_every_plot_has_a_title_and_a_description(text):
    plots = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert len(plots) == 12
    for plot in plots:
        root = ElementTree.fromstring(plot)
        title, description = root[0], root[1]
        assert root.attrib["role"] == "img"
        assert root.attrib["aria-labelledby"] == f"{title.attrib['id']} {description.attrib['id']}"
        assert title.text
        assert description.text


def test_the_page_has_the_findings_and_the_numbers_of_the_report(text, report):
    said = unescape(re.sub(r"<[^>]*>", " ", text))
    for finding in findings(report):
        assert finding in said
    assert report.preferences is not None
    for (condition, other), wins in report.preferences.wins.items():
        lost = report.preferences.wins.get((other, condition), 0)
        assert f"{wins} of {wins + lost}" in said or not wins + lost
    for question in report.ratings:
        for mean in question.means:
            assert f"{mean.mean.value:.2f}" in said
    for listener in report.excluded:
        assert all(reason in said for reason in listener.reasons)
