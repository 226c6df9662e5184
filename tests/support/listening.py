"""A small study with audio, as `relpe batch` makes it, and listeners who answer at once."""

from __future__ import annotations

import socket
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import httpx
import numpy as np
import soundfile

from app.batch.complete import STUDY_NAME
from app.batch.manifest import NAME, write_manifest
from app.batch.study import StudyConfig, as_yaml
from relpe.models.config import from_plain
from tests.support.blind_studies import clip_row
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

RATE = 8000
CONDITIONS = ("piano", "other", "real", "shuffled bars")


def study_folder(
    folder: Path,
    *,
    prompts: int = 2,
    seconds: float = 2.0,
    repetitions: int = 1,
    rate: int = RATE,
    channels: int = 1,
    **listening: object,
) -> Path:
    """Makes a study of four conditions; `listening` are fields of its section."""
    told = {
        "name": "Two ways to go on",
        "prompts": [f"{name}.mid" for name in "abcdef"[:prompts]],
        "repetitions": repetitions,
        "conditions": [
            {"kind": "model", "name": "piano", "model": "piano"},
            {"kind": "model", "name": "other", "model": "piano-spe"},
            {"kind": "real"},
            {"kind": "shuffled_bars"},
        ],
        "listening": listening,
    }
    config = from_plain(StudyConfig, told, "study")
    (folder / "stimuli").mkdir(parents=True)
    rows = []
    for prompt in told["prompts"]:
        for place, condition in enumerate(CONDITIONS):
            for repetition in range(1, (1 if condition == "real" else repetitions) + 1):
                name = f"{prompt[0]}{place}{repetition}"
                times = np.arange(int((seconds + 0.5) * rate)) / rate
                sound = 0.1 * np.sin(2 * np.pi * (220 + 40 * place) * times)
                path = folder / "stimuli" / f"{name}.wav"
                soundfile.write(path, np.tile(sound[:, None], channels), rate, subtype="PCM_16")
                lengths = {"clip_seconds": str(seconds), "new_seconds": str(seconds / 4)}
                audio = f"stimuli/{name}.wav"
                rows.append(clip_row(name, prompt, condition, repetition, audio=audio, **lengths))
    write_manifest(folder / NAME, rows, blind=True)
    (folder / STUDY_NAME).write_text(as_yaml(config), encoding="utf-8")
    return folder


def answers_to(state: dict, choose: Callable[[str], int] = lambda _: 3) -> list[dict]:
    """The answers of a listener who has heard all clips of a trial."""
    told = {"trial": state["position"], "seconds": 5.0}
    for side, clip in zip(("first", "second"), state["clips"], strict=False):
        told[f"heard_{side}"] = clip["seconds"]
    found = []
    for question in state["questions"]:
        if question == "preference":
            found.append(told | {"question": question, "answer": "first", "confidence": 4})
        else:
            found.append(told | {"question": question, "answer": str(choose(question))})
    return found


class Running(NamedTuple):
    """A rating page in a process of its own."""

    address: str
    process: subprocess.Popen[bytes]


@contextmanager
def running(folder: Path, *options: str) -> Iterator[Running]:
    """Runs `relpe listen` on a free port; kills it at the end if it still runs."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "relpe", "listen", str(folder), "--port", str(port), *options]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE) as process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            assert b"press Ctrl+C" in line, line
            yield Running(f"http://127.0.0.1:{port}", process)
        finally:
            process.kill()


class Caller:
    """A listener without a browser, with a connection of their own."""

    def __init__(self, address: str) -> None:
        self.client = httpx.Client(base_url=address, timeout=60)
        self.code = ""
        self.acknowledged: list[tuple[str, int, str, str]] = []
        """Listener, trial, question and answer, each of which the page has confirmed."""

    def call(self, method: str, path: str, content: object = None) -> httpx.Response:
        """Sends a request. Raises httpx.HTTPError for an error."""
        headers = {"Listener": self.code}
        answer = self.client.request(method, path, json=content, headers=headers)
        return answer.raise_for_status()

    def close(self) -> None:
        """Closes the connection."""
        self.client.close()

    def join(self) -> None:
        """Begins the test."""
        self.code = self.call("POST", "/listeners", {}).json()["listener"]

    def go_through(self, choose: Callable[[str], int], *, clips: bool = False) -> None:
        """Answers all questions from the current trial on; with `clips`, loads the audio too."""
        state = self.call("GET", "/listener").json()
        while "questions" in state:
            for side in ("first", "second")[: len(state["clips"])] if clips else ():
                self.call("GET", f"/clips/{state['position']}/{side}")
            for told in answers_to(state, choose):
                self.call("POST", "/answers", told)
                answer = self.code, state["position"], told["question"], told["answer"]
                self.acknowledged.append(answer)
            state = self.call("POST", "/next", {"trial": state["position"]}).json()
