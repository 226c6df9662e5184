"""The command `relpe mcp`."""

from __future__ import annotations

import argparse
import tempfile
from contextlib import ExitStack
from pathlib import Path

from app.cli.arguments import add_model, add_shared, chosen_models
from app.server.memory.heap import limit_heaps


def add_mcp(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.description = (
        "Serve tools to an agent by the Model Context Protocol, on standard input and output. The "
        "agent starts it: name the command relpe with the argument mcp in its configuration."
    )
    add_model(parser, "all released models")
    add_shared(parser, "--max-file-size", "--soundfont")
    parser.add_argument(
        "--output-dir",
        type=Path,
        metavar="FOLDER",
        help="keep the music in this folder (default: it is removed at the end)",
    )
    parser.set_defaults(run=mcp_command)


def mcp_command(options: argparse.Namespace) -> None:
    """Serve the tools on standard input and output until the input ends."""
    import anyio

    from app.server.studio import Studio
    from app.server.uploads import READER
    from app.web.programs.agents import agent_server, serve_stdio
    from app.web.programs.api import Calls
    from app.web.programs.tools import Programs

    limit_heaps()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="relpe-")))
        models = chosen_models(options, options.model)
        models.to_generate()  # reports an unusable model at once
        READER.warm_up()
        kept = options.output_dir
        studio = Studio(
            models, kept or folder / "music", keep=kept is not None, soundfont=options.soundfont
        )
        stack.callback(studio.stop_all)
        programs = Programs(Calls(studio, options.max_file_size), folder)
        anyio.run(serve_stdio, agent_server(programs, remote=False))
