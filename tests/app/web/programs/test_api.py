"""The endpoints for scripts: checks of arguments, and calls of a client to a served page."""

from __future__ import annotations

import json
import re
from pathlib import Path

import gradio as gr
import httpx
import pytest
import soundfile
from gradio_client import Client, handle_file
from gradio_client.exceptions import AppError

from app.compose import replay
from app.compose.options import NEW_PIECE_BARS, MusicOptions, limits
from app.server.studio import Sharing
from app.web.programs.api import file_of, number_of, options_of
from tests.support import fakes
from tests.support.paths import ROOT
from tests.support.served import MARKS, PATIENT, served
from tests.support.waiting import until


def on_a_server(test):
    """Marks a test that talks to a served page."""
    for mark in MARKS:
        test = mark(test)
    return test


README = ROOT / "docs" / "pages" / "how-to" / "script.md"
DEFAULT_ADDRESS = "http://127.0.0.1:7860"


def test_a_wrong_value_is_reported_in_one_sentence_with_its_name_and_limits():
    for name, values in (
        ("bars", [None, "4", "x" * 10**6, 0, 257, 2.5, True, [4], {}, float("nan")]),
        ("temperature", [None, "hot", 0, 3, float("inf")]),
        ("seed", [-2, 2**31, 0.5]),
        ("density", [-1, 201]),
        ("seconds", ["1", None, -1, 601]),
        ("prompt_bars", [-1]),
    ):
        least, most = limits(name).scripts
        for value in values:
            with pytest.raises(gr.Error) as caught:
                number_of(name, value)
            message = caught.value.message
            assert message.startswith(f"{name} is ")
            assert message.endswith(f"number from {least} to {most}")
            assert len(message) < 150
    for value in (None, "song.mid", [], {"path": "/etc/passwd"}):
        with pytest.raises(gr.Error, match="expected an uploaded MIDI file"):
            file_of("prompt", value)
    for sent, message in (
        ({"key": "H"}, "key is 'H', expected a note from A to G"),
        ({"ending": "soft"}, "ending is 'soft', expected one of auto, bar, cadence"),
    ):
        with pytest.raises(gr.Error, match=message):
            options_of(sent)


def test_integers_may_be_sent_as_floats_and_no_seed_is_a_new_one():
    options = options_of({"bars": 4.0, "variations": 2, "temperature": 1, "top_p": 1, "seed": 7.0})
    assert options == MusicOptions(bars=4, variations=2, temperature=1, top_p=1, seed=7)
    assert type(options.bars) is type(options.seed) is int
    steered = options_of(
        {"seed": 7, "top_k": 5.0, "key": "F#m", "density": 12, "ending": "cadence"}
    )
    assert steered == MusicOptions(seed=7, top_k=5, key="F#m", density=12, ending="cadence")
    assert type(steered.top_k) is int
    timed = options_of({"seconds": 30, "prompt_bars": 4.0, "key": ""})
    assert (timed.seconds, timed.prompt_bars, timed.key) == (30, 4, None)
    assert [options_of({"seconds": value}).seconds for value in (0, None, 0.5)] == [None, None, 1]
    drawn = {options_of({"seed": seed}).seed for seed in (None, None, -1, -1)}
    assert len(drawn) == 4


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    sharing = Sharing(max_rows=2, max_waiting=2)
    folder = tmp_path_factory.mktemp("music")
    with served(folder, speed=200.0, sharing=sharing, root_path="/music") as running:
        yield running


@pytest.fixture
def client(page, tmp_path):
    return Client(page.address, verbose=False, download_files=str(tmp_path), httpx_kwargs=PATIENT)


@pytest.fixture
def prompt(tmp_path):
    path = tmp_path / "prompt.mid"
    path.write_bytes(fakes.example_midi(bars=3))
    return path


@on_a_server
def test_a_script_gets_its_files_and_the_seed(client, prompt):
    files, facts = client.predict(handle_file(prompt), bars=1, seed=5, api_name="/continue")
    assert facts["seed"] == 5
    assert replay.read(json.dumps(facts["replay"][0])).options.seed == 5
    assert [Path(file).suffix for file in files] == [".mid", ".mid", ".flac"]
    assert Path(files[0]).read_bytes()[:4] == b"MThd"
    files, facts = client.predict(bars=1, seed=None, variations=2, api_name="/generate")
    assert facts["seed"] >= 0
    assert len(files) == 4
    old = (handle_file(prompt), 1, 0, 1, 1.0, 0.9, 5, "file")  # the arguments of earlier versions
    files, facts = client.predict(*old, api_name="/continue")
    assert (facts["seed"], len(files)) == (5, 3)
    files, facts = client.predict(
        bars=1, seed=5, key="C", density=8, ending="cadence", api_name="/generate"
    )
    assert "density 8.00 · in C · cadence" in facts["settings"][0]
    assert all("_d8.00_in-C_cadence" in file for file in files)


@on_a_server
def test_the_script_of_the_readme_runs(page, monkeypatch, capsys):
    (script,) = re.findall(r"```python\n(from gradio_client .*?)```", README.read_text(), re.DOTALL)
    assert script.count(DEFAULT_ADDRESS) == 1
    monkeypatch.chdir(ROOT)
    exec(script.replace(DEFAULT_ADDRESS, page.address), {})
    seed, metre = capsys.readouterr().out.splitlines()[-2:]
    assert seed.startswith("1 [")
    assert metre == "4/4"


@on_a_server
def test_errors_of_a_script_are_reported_in_one_sentence(client, prompt, capfd):
    upload = handle_file(prompt)
    for wrong, message in (
        ({"bars": "many"}, "bars is 'many', expected a whole number from 1 to 256"),
        ({"prompt": None}, "prompt is null, expected an uploaded"),
        ({"last_bar": -3}, "last_bar is -3, expected"),
        ({"key": 5}, "key is '5', expected a note"),
        ({"model": "other"}, "model is 'other', expected one of fake"),
        ({"beats": "none"}, "beats is 'none', expected one of auto, file, estimate, grid"),
    ):
        with pytest.raises(AppError, match=message):
            client.predict(**{"prompt": upload, "bars": 1} | wrong, api_name="/continue")
    with pytest.raises(httpx.HTTPStatusError) as caught:  # before the call is queued
        client.predict(prompt={"path": str(prompt)}, bars=1, api_name="/continue")
    assert "found a file that was not uploaded, expected an upload" in caught.value.response.text
    prompt.write_bytes(b"MThd")
    for name in ("/continue", "/inspect", "/render"):
        with pytest.raises(AppError, match=r"prompt\.mid"):
            client.predict(handle_file(prompt), api_name=name)
    assert client.predict(api_name="/stop") is False
    assert "Traceback" not in capfd.readouterr().err


@on_a_server
def test_a_script_fills_bars_of_a_file(client, prompt):
    """Those after the end are a continuation."""
    upload = handle_file(prompt)
    files, facts = client.predict(upload, 2, 2, seed=3, api_name="/fill")
    passage = facts["replay"][0]["passage"]
    assert (passage["first_bar"], passage["last_bar"]) == (2, 2)
    assert Path(files[0]).read_bytes()[:4] == b"MThd"
    files, facts = client.predict(upload, 4, 5, seed=3, api_name="/fill")
    assert facts["seed"] == 3
    assert facts["replay"][0]["options"]["bars"] == 2
    assert Path(files[0]).read_bytes()[:4] == b"MThd"
    for wrong, message in (
        ({"last_bar": 1000}, "bars is 999, expected a whole number from 1 to 256"),
        ({"first_bar": 0}, "first_bar is 0, expected a whole number from 1"),
        ({"tracks": "oboe"}, "no track fits 'oboe'; the tracks are 1 Piano 1, 2 Piano 2"),
        ({"instrument": "bass"}, "'bass' fits several instruments"),
    ):
        with pytest.raises(AppError, match=message):
            client.predict(upload, **{"first_bar": 2, "last_bar": 2} | wrong, api_name="/fill")


@on_a_server
def test_a_post_past_the_queue_is_refused(page, client):
    """Two jobs at once would share the model; without a session they could not be stopped."""

    def post(name, data, session=None):
        call = {"data": data, "session_hash": session}
        return httpx.post(f"{page.address}gradio_api/run/{name}", json=call, timeout=60)

    options = [1, 1, 1.0, 0.9, 1, "fake", 0, 0.0, "", 0.0, 0.0, "bar", 0]
    assert post("generate", options).status_code == 404
    assert "session_hash" in post("stop", []).json()["error"]
    assert post("stop", [], client.session_hash).json()["data"] == [False]


@on_a_server
def test_defaults_are_those_of_commands_and_the_page_names_its_path(page, client):
    described = client.view_api(return_format="dict")["named_endpoints"]
    for name, bars in (("/continue", MusicOptions.bars), ("/generate", NEW_PIECE_BARS)):
        parameters = {p["parameter_name"]: p for p in described[name]["parameters"]}
        assert parameters["bars"]["parameter_default"] == bars
    config = httpx.get(f"{page.address}config", timeout=60).json()
    assert config["root"].endswith("/music")


@on_a_server
def test_a_file_is_described_and_rendered(client, prompt):
    facts = client.predict(handle_file(prompt), api_name="/inspect")
    assert (facts["model"], facts["bars"], facts["metre"], facts["bpm"]) == ("fake", 3, "4/4", 96.0)
    assert sum(row["notes"] for row in facts["rows"]) == facts["notes"] > 0
    path = client.predict(handle_file(prompt), api_name="/render")
    assert soundfile.info(path).format == "FLAC"
    seconds = 3 * 4 * 60 / 96
    assert seconds <= soundfile.info(path).duration <= seconds + 2.1


def counts(page):
    """Numbers of running and waiting jobs."""
    jobs = httpx.get(f"{page.address}healthz", timeout=60).json()["jobs"]
    return jobs["running"], jobs["waiting"]


@on_a_server
def test_jobs_run_and_wait_and_too_many_are_refused(page, client):
    """One job takes all places, two wait, and another is refused: try again later."""
    long = {"bars": 256, "variations": 2, "api_name": "/generate"}
    other = Client(page.address, verbose=False, httpx_kwargs=PATIENT)
    running = other.submit(**long)  # takes all places
    until(lambda: counts(page) == (1, 0))
    waiting = [client.submit(**long) for _ in range(2)]
    until(lambda: counts(page) == (1, 2))
    with pytest.raises(AppError, match="The queue for"):
        other.predict(**long)
    before = len(page.model.ended)
    assert client.predict(api_name="/stop") is True  # only those of this client
    for job in waiting:
        with pytest.raises(AppError, match="nothing to keep"):
            job.result()
    assert client.predict(api_name="/health")["jobs"] == {"running": 1, "waiting": 0}
    assert other.predict(api_name="/stop") is True
    assert len(running.result()[0]) == 4
    assert len(page.model.ended) == before + 1  # those that waited did not begin
    until(lambda: counts(page) == (0, 0))
