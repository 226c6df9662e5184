"""Ogg files that are the same for the same sound: the container numbers its stream at random."""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_SERIAL = 1
_HEADER = 27
_TURNED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))


def number_stream(path: Path) -> None:
    """Gives the only stream of an Ogg file the number 1, in every page (RFC 3533, section 6)."""
    with path.open("r+b") as file:
        while header := file.read(_HEADER):
            start = file.tell() - _HEADER
            lengths = file.read(header[26])
            body = lengths + file.read(sum(lengths))
            numbered = header[:14] + struct.pack("<I", _SERIAL) + header[18:22] + bytes(4)
            checksum = page_checksum(numbered + header[26:] + body)
            file.seek(start)
            file.write(numbered[:22] + struct.pack("<I", checksum))
            file.seek(start + _HEADER + len(body))


def page_checksum(page: bytes) -> int:
    """That of a page whose checksum is zero: zlib's with all bits turned round, begun at zero."""
    turned = zlib.crc32(page.translate(_TURNED), 0xFFFFFFFF) ^ 0xFFFFFFFF
    return int(f"{turned:032b}"[::-1], 2)
