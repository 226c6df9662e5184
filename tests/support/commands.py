"""Runs the command `relpe` with a small model."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from app.cli.main import main

if TYPE_CHECKING:
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


def help_without_engine(command: str) -> str:
    """Output of a command with --help, in a process that must not load PyTorch or Gradio."""
    code = (
        "import sys\nfrom app.cli.main import main\n"
        f"try:\n    main(['{command}', '--help'])\nexcept SystemExit:\n    pass\n"
        "sys.exit('torch' in sys.modules or 'gradio' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout
