"""The command `relpe` with a small model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path


def relpe(folder: Path, command: str, *extra: str) -> int:
    """Exit code of a command whose files are in the fixture `folder`."""
    arguments = [command]
    if command == "continue":
        arguments += [str(folder / "prompt.mid")]
    output = [] if "--output" in extra else ["--output", str(folder / "out.mid")]
    model = [] if "--model" in extra else ["--model", str(folder / "small")]
    backend = [] if "--backend" in extra else ["--backend", "torch"]
    return main([*arguments, *output, *model, *backend, *extra])
