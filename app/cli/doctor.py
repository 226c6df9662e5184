"""The command `relpe doctor`: what a report of a fault needs, and what is wrong here."""

from __future__ import annotations

import json
import os
import platform
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from app.cli.arguments import add_shared
from app.errors import CommandError

if TYPE_CHECKING:
    import argparse

PACKAGES = ("torch", "numpy", "numba", "music21", "soundfile", "gradio", "starlette")
LEAST_MEMORY_GIB = 1.5
LEAST_DISK_GIB = 0.5
SLOW_TOKENS_PER_SECOND = 300
"""A piano piece has some 25 tokens a second: below this, eight takes are slower than the music."""


@dataclass
class Diagnosis:
    """Facts by name, and problems, each with what to do about it."""

    facts: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def add_doctor(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `relpe doctor`."""
    add_shared(parser, "--json")
    parser.set_defaults(run=doctor_command)


def doctor_command(options: argparse.Namespace) -> None:
    """Print the facts, and what is wrong.

    Raises:
        CommandError: something is wrong; the message says what, and what to do.
    """
    diagnosis = Diagnosis()
    for name, fact in _facts(diagnosis.problems):
        diagnosis.facts[name] = fact
        if not options.json:
            print(f"{name:<17}{fact}", flush=True)
    if options.json:
        print(json.dumps({"facts": diagnosis.facts, "problems": diagnosis.problems}))
    if diagnosis.problems:
        raise CommandError("; ".join(diagnosis.problems))
    if not options.json:
        print("Nothing is wrong.")


def _facts(problems: list[str]) -> Iterator[tuple[str, str]]:
    """Yield names and facts, and append to the problems."""
    yield "relpe", f"{version('relpe')} in {Path(__file__).parents[2]}"
    yield "python", f"{platform.python_version()}, {platform.platform()}"
    yield "packages", ", ".join(f"{name} {_version(name)}" for name in PACKAGES)
    yield "processor", _processor()
    yield "memory", _memory(problems)
    yield "folders", _folders(problems)
    yield "sound", _sound(problems)
    yield from _models(problems)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "missing"


def _processor() -> str:
    try:
        from llvmlite.binding import get_host_cpu_name

        name = get_host_cpu_name()
    except ImportError:
        name = platform.processor() or platform.machine()
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{name}, {usable} threads"


def _memory(problems: list[str]) -> str:
    """Return the memory of the machine and what of it is free, where the system says so (Linux)."""
    try:
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
    except OSError:
        return "not known on this system"
    sizes = {line.partition(":")[0]: int(line.split()[1]) / 2**20 for line in lines if ":" in line}
    free = sizes["MemAvailable"]
    if free < LEAST_MEMORY_GIB:
        problems.append(
            f"found {free:.1f} GiB of free memory, expected {LEAST_MEMORY_GIB}: close other "
            "programs"
        )
    return f"{sizes['MemTotal']:.1f} GiB, {free:.1f} free"


def _folders(problems: list[str]) -> str:
    """Return where temporary files and compiled code go, and how much room there is."""
    import tempfile

    folder = Path(tempfile.gettempdir())
    free = shutil.disk_usage(folder).free / 2**30
    if free < LEAST_DISK_GIB:
        problems.append(
            f"{folder}: found {free:.1f} GiB of free space, expected {LEAST_DISK_GIB}: remove "
            "files, or set TMPDIR"
        )
    return f"{folder}, {free:.1f} GiB free"


def _sound(problems: list[str]) -> str:
    """Return what renders audio, after a note that it renders."""
    from app.audio.render import render
    from tokenization.score import Score, Track

    try:
        audio = render(Score(12, (Track.of([(0, 12, 60, 64)]),)))
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what the report is about
        problems.append(f"audio cannot be rendered: {error}")
        return f"none: {error}"
    player = "FluidSynth" if shutil.which("fluidsynth") else "the built-in player"
    return f"{player}, {len(audio.samples):,} samples of a note"


def _models(problems: list[str]) -> Iterator[tuple[str, str]]:
    """Yield how each released model generates tokens, and how fast."""
    from app.compose.continuation import generate_midi
    from app.compose.models import load_music_model, released
    from app.compose.options import MusicOptions

    folders = released()
    if not folders:
        problems.append("found no released models: install the package again")
    for folder in folders:
        try:
            model = load_music_model(folder.name)
            started = time.perf_counter()
            result = generate_midi(model, MusicOptions(bars=4, seed=0, takes=1))
            seconds = time.perf_counter() - started
        except Exception as error:  # noqa: BLE001 - as above
            problems.append(f"{folder.name}: {error}")
            yield folder.name, f"cannot be used: {error}"
            continue
        speed = result.tokens_per_second
        yield folder.name, f"{model.steps.name}, {speed:,.0f} tokens/s, {seconds:.1f} s for 4 bars"
        if model.steps.fell_back and folder.name in ("piano", "groove"):
            problems.append(f"{folder.name}: {model.steps.fell_back}")
        elif speed < SLOW_TOKENS_PER_SECOND and not model.steps.fell_back:
            problems.append(
                f"{folder.name}: found {speed:,.0f} tokens/s, expected {SLOW_TOKENS_PER_SECOND}: "
                "the machine is busy"
            )
