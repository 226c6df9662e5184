"""The experiment of a study for webMUSHRA, software for listening tests in a browser.

Source: its documentation for experimenters (`doc/experimenter.md` of audiolabs/webMUSHRA).
"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterable

    from app.batch.manifest import Row

NAME = "webmushra.yaml"
_FOLDER = "configs/resources"
"""Folder of webMUSHRA in which its own resources are; paths are relative to its root."""
_LABELS = ("Bad", "Poor", "Fair", "Good", "Excellent")


def experiment(name: str, identifier: str, question: str, rows: Iterable[Row]) -> str:
    """Return the experiment as YAML: a page for each prompt and repetition, in random order.

    Each page is of the type `likert_multi_stimulus`: all its stimuli are rated from 1 to 5. The
    files are expected in `configs/resources/IDENTIFIER/stimuli` of webMUSHRA.
    """
    grouped = sorted(rows, key=lambda row: (row.prompt, int(row.repetition), row.file))
    pages: list[Any] = ["random"]
    for number, (_, on_page) in enumerate(
        groupby(grouped, lambda row: (row.prompt, row.repetition)), 1
    ):
        pages.append(
            {
                "type": "likert_multi_stimulus",
                "id": f"page{number}",
                "name": name,
                "content": question,
                "mustRate": True,
                "mustPlayback": "ended",
                "stimuli": {
                    Path(row.audio).stem: f"{_FOLDER}/{identifier}/{row.audio}" for row in on_page
                },
                "response": [
                    {
                        "value": value,
                        "label": label,
                        "img": f"{_FOLDER}/images/star_off.png",
                        "imgSelected": f"{_FOLDER}/images/star_on.png",
                        "imgHigherResponseSelected": f"{_FOLDER}/images/star_on.png",
                    }
                    for value, label in enumerate(_LABELS, 1)
                ],
            }
        )
    finish = {
        "type": "finish",
        "name": "Thank you",
        "content": "Your ratings have been sent.",
        "showResults": False,
        "writeResults": True,
    }
    first = next(iter(pages[1]["stimuli"].values()))
    volume = {
        "type": "volume",
        "id": "volume",
        "name": name,
        "content": "Set a comfortable volume, and do not change it afterwards.",
        "stimulus": first,
        "defaultVolume": 0.5,
    }
    config = {
        "testname": name,
        "testId": identifier,
        "bufferSize": 2048,
        "stopOnErrors": True,
        "showButtonPreviousPage": False,
        "remoteService": "service/write.php",
        "pages": [volume, pages, finish],
    }
    return yaml.safe_dump(config, sort_keys=False, allow_unicode=True, width=100)
