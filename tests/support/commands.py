"""Runs the command `relpe` with a small model."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from app.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def relpe(folder: Path, command: str, *extra: str) -> int:
    """Run a command with files in the fixture `folder`; return its exit code."""
    arguments = [command]
    if command == "continue":
        arguments += [str(folder / "prompt.mid")]
    output = [] if "--output" in extra else ["--output", str(folder / "out.mid")]
    model = [] if "--model" in extra else ["--model", str(folder / "small")]
    backend = [] if "--backend" in extra else ["--backend", "torch"]
    return main([*arguments, *output, *model, *backend, *extra])


def run_without(modules: Sequence[str], arguments: Sequence[str]) -> str:
    """Output of a command in a process of its own, which must not load any of the modules."""
    code = (
        "import sys\nfrom app.cli.main import main\n"
        f"try:\n    code = main({list(arguments)})\n"
        "except SystemExit as left:\n    code = left.code\n"
        f"sys.exit(code or [name for name in {list(modules)} if name in sys.modules] or 0)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout


def help_without_engine(command: str) -> str:
    """Output of a command with --help, in a process that must not load PyTorch or Gradio."""
    return run_without(["torch", "gradio"], [command, "--help"])
