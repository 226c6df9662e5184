"""The experiment for webMUSHRA has the structure that its documentation describes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import yaml

from app.batch.manifest import COLUMNS, Row
from app.batch.webmushra import experiment

# types of the keys in doc/experimenter.md of webMUSHRA
TOP = {
    "testname": str,
    "testId": str,
    "bufferSize": int,
    "stopOnErrors": bool,
    "showButtonPreviousPage": bool,
    "remoteService": str,
    "pages": list,
}
PAGES: dict[str, dict[str, Any]] = {
    "volume": {"id": str, "name": str, "content": str, "stimulus": str, "defaultVolume": float},
    "likert_multi_stimulus": {
        "id": str,
        "name": str,
        "content": str,
        "mustRate": bool,
        "mustPlayback": str,
        "stimuli": dict,
        "response": list,
    },
    "finish": {"name": str, "content": str, "showResults": bool, "writeResults": bool},
}
POINT = {"value": int, "label": str, "img": str, "imgSelected": str}
POINT |= {"imgHigherResponseSelected": str}


def row(name: str, prompt: str, repetition: int) -> Row:
    blank = Row(**dict.fromkeys(COLUMNS, ""))
    audio = f"stimuli/{name}.wav"
    return replace(blank, audio=audio, file=name, prompt=prompt, repetition=str(repetition))


def test_an_experiment_has_the_documented_keys():
    rows = [row("a", "p", 1), row("b", "q", 1), row("c", "p", 1), row("d", "p", 2)]
    told = yaml.safe_load(experiment("My: study", "my-study", "How good?", rows))
    assert {name: type(value) for name, value in told.items()} == TOP
    assert told["bufferSize"] in (256, 512, 1024, 2048, 4096, 8192, 16384)
    volume, (order, *pages), finish = told["pages"]
    assert order == "random"
    for page in (volume, *pages, finish):
        kind = page.pop("type")
        assert {name: type(value) for name, value in page.items()} == PAGES[kind]
    assert 0 <= volume["defaultVolume"] <= 1
    assert [list(page["stimuli"]) for page in pages] == [["a", "c"], ["d"], ["b"]]
    assert pages[0]["stimuli"]["a"] == "configs/resources/my-study/stimuli/a.wav"
    assert len({page["id"] for page in pages}) == 3
    for page in pages:
        assert page["mustPlayback"] in ("ended", "processUpdate")
        assert [point["value"] for point in page["response"]] == [1, 2, 3, 4, 5]
        for point in page["response"]:
            assert {name: type(value) for name, value in point.items()} == POINT
