"""MusicXML files for tests."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping

HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n'
CONTAINER = (
    '<?xml version="1.0"?><container><rootfiles><rootfile full-path="music/score.xml"/>'
    "</rootfiles></container>"
)
FOUR_FOUR = (
    "<attributes><divisions>4</divisions><time><beats>4</beats><beat-type>4</beat-type></time>"
    "</attributes>"
)


def note(pitch: str | None, length: int, inside: str = "", *, staff: int = 0) -> str:
    """A note such as C4 or F#5, or a rest, of a length in divisions; `inside`: more elements."""
    if pitch is None:
        what = "<rest/>"
    else:
        alter = "<alter>1</alter>" if "#" in pitch else ""
        what = f"<pitch><step>{pitch[0]}</step>{alter}<octave>{pitch[-1]}</octave></pitch>"
    chord = "<chord/>" if "<chord/>" in inside else ""
    rest = inside.replace("<chord/>", "")
    on_staff = f"<staff>{staff}</staff>" if staff else ""
    return f"<note>{chord}{what}<duration>{length}</duration>{rest}{on_staff}</note>"


def score(parts: Mapping[str, str], instruments: Mapping[str, str] | None = None) -> bytes:
    """A file of parts: measures by name; `instruments` are elements of the list of parts."""
    known = instruments or {}
    listed = "".join(
        f'<score-part id="P{n}"><part-name>{name}</part-name>{known.get(name, "")}</score-part>'
        for n, name in enumerate(parts)
    )
    played = "".join(f'<part id="P{n}">{body}</part>' for n, body in enumerate(parts.values()))
    body = f"<part-list>{listed}</part-list>{played}"
    return (HEAD + f'<score-partwise version="4.0">{body}</score-partwise>').encode()


def bars(*contents: str, first: str = FOUR_FOUR) -> str:
    """Measures with the notes of each; the first one has the attributes."""
    return "".join(
        f'<measure number="{n}">{first if n == 1 else ""}{content}</measure>'
        for n, content in enumerate(contents, 1)
    )


def compressed(content: bytes, container: str = CONTAINER) -> bytes:
    """The file as .mxl."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("META-INF/container.xml", container)
        archive.writestr("music/score.xml", content)
    return buffer.getvalue()
