"""The experiment for webMUSHRA has the structure that its documentation describes."""

from __future__ import annotations

from dataclasses import replace

import yaml

from app.batch.manifest import COLUMNS, Row
from app.batch.webmushra import experiment

# the keys in doc/experimenter.md of webMUSHRA
TOP = {"testname", "testId", "bufferSize", "stopOnErrors", "showButtonPreviousPage"}
TOP |= {"remoteService", "pages"}
PAGES = {
    "volume": {"id", "name", "content", "stimulus", "defaultVolume"},
    "likert_multi_stimulus": {"id", "name", "content", "mustRate", "mustPlayback", "stimuli"}
    | {"response"},
    "finish": {"name", "content", "showResults", "writeResults"},
}
POINT = {"value", "label", "img", "imgSelected", "imgHigherResponseSelected"}


def row(name: str, prompt: str, repetition: int) -> Row:
    blank = Row(**dict.fromkeys(COLUMNS, ""))
    audio = f"stimuli/{name}.wav"
    return replace(blank, audio=audio, file=name, prompt=prompt, repetition=str(repetition))


def test_an_experiment_has_the_documented_keys():
    rows = [row("a", "p", 1), row("b", "q", 1), row("c", "p", 1), row("d", "p", 2)]
    told = yaml.safe_load(experiment("My: study", "my-study", "How good?", rows))
    assert told.keys() == TOP
    assert told["bufferSize"] in (256, 512, 1024, 2048, 4096, 8192, 16384)
    volume, (order, *pages), finish = told["pages"]
    assert order == "random"
    for page in (volume, *pages, finish):
        kind = page.pop("type")
        assert page.keys() == PAGES[kind]
    assert 0 <= volume["defaultVolume"] <= 1
    assert [list(page["stimuli"]) for page in pages] == [["a", "c"], ["d"], ["b"]]
    assert pages[0]["stimuli"]["a"] == "configs/resources/my-study/stimuli/a.wav"
    assert len({page["id"] for page in pages}) == 3
    for page in pages:
        assert page["mustPlayback"] in ("ended", "processUpdate")
        assert [point["value"] for point in page["response"]] == [1, 2, 3, 4, 5]
        assert all(point.keys() == POINT for point in page["response"])
