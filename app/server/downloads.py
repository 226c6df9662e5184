"""The files of a job that the page offers for download: one row for each kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from app.audio.formats import AUDIO_FORMATS
from app.compose.piece import Piece
from app.compose.plan.sheet_music import is_for_piano, sheet_music

Content = Callable[[Piece, Callable[[], bytes]], bytes]
"""Returns the content of a file, given a piece and a function that returns its settings as JSON."""


class Download(NamedTuple):
    """A kind of file."""

    kind: str
    """Its name in requests."""
    suffix: str
    """The end of the file name, after the name of the piece."""
    label: str
    text: str
    """Short description for the menu."""
    content: Content | None = None
    """None for sound, which `job_audio.py` renders."""
    after_prompt: bool = False
    """Whether only continuations have this file."""
    of: Callable[[Piece], bool] = lambda _: True
    """Whether a piece has this file."""


_SOUND = {"flac": "lossless audio", "wav": "uncompressed audio", "ogg": "compressed audio"}
DOWNLOADS = (
    Download("midi", ".mid", "MIDI", "the whole piece", lambda piece, _: piece.midi),
    Download(
        "new_midi",
        "_new_part.mid",
        "MIDI",
        "only the new music",
        lambda piece, _: piece.new_midi,
        after_prompt=True,
    ),
    Download(
        "score",
        ".musicxml",
        "Score",
        "sheet music (MusicXML), rounded, no dynamics",
        lambda piece, _: sheet_music(piece.score),
        of=lambda piece: is_for_piano(piece.score),
    ),
    *(Download(name, f".{name}", name.upper(), _SOUND[name]) for name in AUDIO_FORMATS),
    Download("stems", "_stems.zip", "Stems", "one audio file per track (ZIP)"),
    Download(
        "replay",
        ".json",
        "Settings",
        "to generate the same music again (JSON)",
        lambda _, settings: settings(),
    ),
)
"""All kinds of files; `midi` has its own button, the others are in the menu."""
SOUND_KINDS = tuple(download.kind for download in DOWNLOADS if download.content is None)
MENU = tuple((d.kind, d.label, d.text) for d in DOWNLOADS if d.kind != "midi")
