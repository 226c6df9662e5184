"""Continues MIDI files and generates new pieces with trained models.

    from pathlib import Path
    from app import MusicOptions, continue_midi, load_music_model

    model = load_music_model("piano")
    result = continue_midi(model, Path("song.mid").read_bytes(), MusicOptions(bars=8, seed=1))
    Path("continued.mid").write_bytes(result.pieces[0].midi)

`fill_midi` writes a `Passage` of a piece, which is some bars and tracks, or a new track.
`generate_midi` generates a piece without a prompt, and `render` turns a score into audio. Each name
is imported when it is first used, so that `import app` is fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from app.audio.render import render
    from app.compose.continuation import continue_midi, fill_midi, generate_midi
    from app.compose.fill.passage import Passage
    from app.compose.models import load_music_model
    from app.compose.options import MusicOptions

__all__ = [
    "MusicOptions",
    "Passage",
    "continue_midi",
    "fill_midi",
    "generate_midi",
    "load_music_model",
    "render",
]

_HOMES = {
    "MusicOptions": "app.compose.options",
    "Passage": "app.compose.fill.passage",
    "continue_midi": "app.compose.continuation",
    "fill_midi": "app.compose.continuation",
    "generate_midi": "app.compose.continuation",
    "load_music_model": "app.compose.models",
    "render": "app.audio.render",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
