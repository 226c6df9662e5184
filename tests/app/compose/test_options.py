"""The music options, and everything that is built from them."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from app.compose.options import OF_PROMPT, OPTIONS, MusicOptions
from tests.support.paths import ROOT

WITH_MORE = """
import asyncio, json, tempfile
from contextlib import redirect_stdout, suppress
from dataclasses import make_dataclass
from io import StringIO
from pathlib import Path

from app.compose import options
from app.compose.options import MusicOptions, Widget, described, option, within

def field(name, only):
    limits = within((0.0, 2.0), scripts=(0.0, 1.0), page=(0.0, 0.5))
    widget = Widget("slider", name, "steering", step=0.1)
    return option(0.0, "how late notes are", limits, widget=widget, only=only)

fields = [("swing", None), ("swing_of_prompt", "prompt"), ("swing_of_nothing", "nothing")]
options.MusicOptions = make_dataclass(
    "MusicOptions",
    [(name, float, field(name, only)) for name, only in fields],
    bases=(MusicOptions,),
    frozen=True,
    kw_only=True,
)
options.OPTIONS = described(options.MusicOptions)

from app.cli.main import main
from app.compose.models import Models
from app.web import api
from app.web.tabs import music as tabs
from app.web.page import build_page
from tests.support.fakes import FakeModel

def arguments(command):
    with redirect_stdout(StringIO()) as out, suppress(SystemExit):
        main([command, "--help"])
    return [name for name, _ in fields if f"--{name.replace('_', '-')} X" in out.getvalue()]

async def build():
    return build_page(Models.only(FakeModel()), Path(tempfile.mkdtemp()))

page = asyncio.run(build())
endpoints = page.get_api_info()["named_endpoints"]
sliders = [
    (one.label, one.minimum, one.maximum, one.value, one.step, one.info, one.visible)
    for one in page.blocks.values()
    if one.get_block_name() == "slider" and one.label.startswith("swing")
]
print(json.dumps({
    "commands": [arguments(command) for command in ("continue", "generate", "batch")],
    "endpoints": [
        [one["parameter_name"] for one in endpoints[name]["parameters"]][-2:]
        for name in ("/continue", "/generate")
    ],
    "sliders": sliders,
    "form": tabs.options_of("bars", {"bars": 4, "seed": 1, "swing": 0.25}).swing,
    "script": api.options_of({"seed": 1, "swing": 0.75}).swing,
}))
"""


def test_a_new_field_is_an_option_of_commands_endpoints_and_page():
    command = [sys.executable, "-c", WITH_MORE]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    found = json.loads(run.stdout.splitlines()[-1])
    all_music, prompt, nothing = "swing", "swing_of_prompt", "swing_of_nothing"
    assert found["commands"] == [
        [all_music, prompt],
        [all_music, nothing],
        [all_music, prompt, nothing],
    ]
    # last, so that calls with positional arguments keep their meaning
    assert found["endpoints"] == [[all_music, prompt], [all_music, nothing]]
    assert found["sliders"] == [
        [name, 0.0, 0.5, 0.0, 0.1, "How late notes are.", True]
        for name in (all_music, prompt, nothing)
    ]
    assert (found["form"], found["script"]) == (0.25, 0.75)


def test_options_are_described_as_they_are_declared():
    assert (OPTIONS["seed"].kind, OPTIONS["seconds"].kind, OPTIONS["key"].kind) == (int, float, str)
    assert OPTIONS["ending"].words == ("bar", "cadence", "natural")
    assert OF_PROMPT == ("prompt_bars", "distance", "presence", "recall")
    for name, option in OPTIONS.items():
        assert option.default == getattr(MusicOptions(), name)
        if option.limits is not None:
            wide, scripts, page = option.limits
            assert page[0] >= wide[0]
            assert scripts[1] is None or wide[1] is None or scripts[1] <= wide[1]
        if option.widget is not None and option.words:
            assert 0 < len(option.widget.choices) <= len(option.words)


def test_a_value_out_of_its_range_is_refused_by_name():
    values: list[tuple[dict[str, Any], str]] = [
        ({"bars": 0}, "bars is 0, expected 1 to 4096"),
        ({"prompt_bars": -1}, "prompt bars is -1, expected at least 0"),
        ({"top_p": 2}, "top p is 2, expected 0 to 1"),
        ({"ending": "soft"}, "ending is 'soft', expected bar, cadence or natural"),
    ]
    for options, problem in values:
        with pytest.raises(ValueError, match=f"^{problem}$"):
            MusicOptions(**options)
    texts: list[dict[str, Any]] = [{"key": "H"}, {"chords": "H"}, {"chords": ""}, {"form": "8A"}]
    for options in texts:
        with pytest.raises(ValueError, match="expected"):
            MusicOptions(**options)


def test_letters_of_file_names_are_different():
    """`Job._name` itself uses a, b, h, i, p, s, T, t and v."""
    letters = [option.letter for option in OPTIONS.values() if option.letter]
    assert len(set(letters)) == len(letters) > 3
    assert not set(letters) & set("abhipsTtv")
