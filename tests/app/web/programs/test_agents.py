"""The tools of agents, called by the official client."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from app.web.programs.api import Calls
from app.web.programs.tools import TOOLS, Programs
from tests.support import fakes
from tests.support.paths import ROOT
from tests.support.served import MARKS, served
from tokenization.midi import read_midi

pytest.importorskip("mcp")

import httpx2
from mcp import StdioServerParameters
from mcp.client import Client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from app.web.programs import agents

ACCOUNT = ("anna", "secret-word")


async def call(client, name, **arguments):
    """The facts that a tool returns, or the text of its error."""
    result = await client.call_tool(name, arguments)
    return result.content[0].text if result.is_error else result.structured_content


def session(target, *calls):
    """The tools of a server, and its answers to some calls, each made of the answers before."""

    async def run():
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(Client(target))
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            answers = []
            for make in calls:
                name, arguments = make(*answers)
                answers.append(await call(client, name, **arguments))
            return tools, answers

    return asyncio.run(run())


@pytest.fixture
def programs(studio, tmp_path):
    return Programs(Calls(studio, 100_000), tmp_path)


def data_of(midi):
    return f"data:audio/midi;base64,{base64.b64encode(midi).decode()}"


def chain(midi):
    """Calls that use the answers of earlier ones."""
    return (
        lambda: ("generate", {"bars": 2, "seed": 5}),
        lambda new: ("inspect", {"prompt": new["midi"]}),
        lambda new, _: ("continue", {"prompt": new["midi"], "bars": 1, "answer": "base64"}),
        lambda *_: ("fill", {"prompt": data_of(midi), "first_bar": 2, "last_bar": 2}),
        lambda *answers: ("render", {"prompt": answers[3]["midi"]}),
    )


def check_chain(answers, path_of):
    new, facts, longer, filled, sound = answers
    assert new["seed"] == 5
    assert facts["notes"] == read_midi(path_of(new["midi"]).read_bytes()).num_notes
    assert read_midi(base64.b64decode(longer["midi"])).num_notes >= facts["notes"]
    assert (filled["type"], sound["type"]) == ("audio/midi", "audio/flac")
    assert path_of(sound["sound"]).read_bytes()[:4] == b"fLaC"
    assert len(json.dumps(answers)) < 10_000


def test_an_agent_makes_music_step_by_step(programs):
    for remote in (False, True):
        server = agents.agent_server(programs, remote=remote)
        tools, answers = session(server, *chain(fakes.example_midi(bars=3)))
        check_chain(answers, lambda path: Path(path.removeprefix(agents.DOWNLOADS)))
        assert tools.keys() == TOOLS.keys()
        properties = tools["accompany"].input_schema["properties"]
        assert all(kind["description"] for kind in properties.values())
        assert properties["temperature"]["maximum"] == 2.0


def test_bad_calls_are_errors_of_one_sentence(programs, tmp_path, monkeypatch):
    monkeypatch.setattr(agents, "MOST_INLINE_BYTES", 10)
    other = tmp_path / "song.mid"
    other.write_bytes(fakes.example_midi(bars=3))
    server = agents.agent_server(programs, remote=True)
    inside = f"{agents.DOWNLOADS}{other}"
    given = {"prompt": data_of(other.read_bytes())}
    wrong = (
        ("sing", {}, "there is no tool 'sing', expected one of continue, fill"),
        ("generate", {"bars": 0}, "bars is 0: Input should be greater than or equal to 1"),
        ("generate", {"speed": 0}, "speed is 0: Extra inputs are not permitted"),
        ("generate", {"key": "H"}, "key is 'H', expected a note from A to G"),
        ("inspect", {}, "prompt: Field required"),
        ("inspect", {"prompt": "data:;base64,***"}, "prompt is no base64"),
        ("inspect", {"prompt": "data:;base64,é"}, "prompt is no base64"),
        ("inspect", {"prompt": "data:;base64,TVRoZA=="}, "piece.mid: the file is cut off"),
        ("inspect", {"prompt": str(other)}, "expected a path that a tool returned"),
        ("inspect", {"prompt": inside}, "expected a path that a tool returned"),
        ("render", given | {"answer": "base64"}, "bytes, expected at most 10 for base64"),
    )
    calls = [lambda *_, name=name, sent=sent: (name, sent) for name, sent, _ in wrong]
    for answer, (*_, sentence) in zip(session(server, *calls)[1], wrong, strict=True):
        assert sentence in answer
        assert "\n" not in answer
    local = agents.agent_server(programs, remote=False)
    names = {"none.mid": "there is no such file", ".": "found a folder", "\0": "null byte"}
    calls = [lambda *_, name=name: ("inspect", {"prompt": str(tmp_path / name)}) for name in names]
    answers = session(local, *calls)[1]
    assert all(text in answer for text, answer in zip(names.values(), answers, strict=True))


def on_a_server(test):
    """Marks a test that talks to a server."""
    for mark in MARKS:
        test = mark(test)
    return test


@on_a_server
def test_the_page_serves_agents_behind_its_login(tmp_path):
    with served(tmp_path, speed=200.0, accounts=(ACCOUNT,), mcp=True) as page:
        address = f"{page.address}mcp"
        assert httpx2.post(address, json={}).status_code == 401

        async def run():
            async with httpx2.AsyncClient(auth=ACCOUNT, timeout=300) as http:
                async with Client(streamable_http_client(address, http_client=http)) as client:
                    new = await call(client, "generate", bars=1)
                    facts = await call(client, "inspect", prompt=new["midi"])
                got = await http.get(page.address.rstrip("/") + new["midi"])
                return facts, got.content

        facts, music = asyncio.run(run())
    assert facts["notes"] == read_midi(music).num_notes > 0


@pytest.mark.slow
def test_the_command_serves_agents_on_standard_input(tmp_path):
    command = ["-m", "relpe", "mcp", "--model", "piano", "--output-dir", str(tmp_path)]
    server = StdioServerParameters(command=sys.executable, args=command, cwd=ROOT)
    midi = (ROOT / "examples" / "ballad.mid").read_bytes()
    _, answers = session(stdio_client(server), *chain(midi))
    check_chain(answers, Path)
    assert Path(answers[0]["midi"]).is_relative_to(tmp_path)
