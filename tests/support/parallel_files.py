"""Small parallel text, in each of the formats that are read."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

NUMBERS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
NOMBRES = ["un", "deux", "trois", "quatre", "cinq", "six", "sept", "huit", "neuf", "dix"]


def number_pairs(count: int = 100) -> list[tuple[str, str]]:
    """Numbers in words, and their digits from the end in French."""
    digits = [list(map(int, str(number))) for number in range(10, 10 + count)]
    return [
        (" ".join(NUMBERS[d] for d in each), "-".join(NOMBRES[d] for d in reversed(each)))
        for each in digits
    ]


def write_lines(path: Path, lines: Sequence[str]) -> None:
    """A file with a text per line."""
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="")


def write_both(folder: Path, name: str, pairs: Sequence[tuple[str, str]]) -> None:
    """`NAME.en` and `NAME.fr`, line by line, and `NAME.tsv` and `NAME.mo`, with the same pairs."""
    folder.mkdir(parents=True, exist_ok=True)
    write_lines(folder / f"{name}.en", [source for source, _ in pairs])
    write_lines(folder / f"{name}.fr", [target for _, target in pairs])
    write_lines(folder / f"{name}.tsv", [f"{source}\t{target}" for source, target in pairs])
    (folder / f"{name}.mo").write_bytes(messages(pairs))


def messages(pairs: Sequence[tuple[str, str]]) -> bytes:
    """A .mo file of gettext."""
    facts = ("", "Content-Type: text/plain; charset=UTF-8\n")
    texts = [
        [text.encode() for text in side] for side in zip(*sorted({facts, *pairs}), strict=True)
    ]
    count = len(texts[0])
    place, tables, content = 28 + 16 * count, b"", b""
    for side in texts:
        for text in side:
            tables += struct.pack("<II", len(text), place + len(content))
            content += text + b"\0"
    header = struct.pack("<7I", 0x950412DE, 0, count, 28, 28 + 8 * count, 0, 0)
    return header + tables + content
