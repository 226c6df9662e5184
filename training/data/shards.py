"""Shards: files of bounded size that hold the tokens of a split and are memory-mapped.

A single shard is stored in the folder of the split itself, several shards in its subfolders
`shard-00000` and so on. A piece is never divided.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from training.errors import TrainingError

SHARD_TOKENS = 2**27
"""Maximum tokens of a shard, 256 MiB; a longer piece has its own shard."""
PIECE = np.dtype([("corpus", "u1"), ("style", "i1"), ("masked", "u1")])
"""A row of `pieces.npy`: see `PieceFacts`."""


class PieceFacts(NamedTuple):
    """What is known of a piece besides its tokens."""

    corpus: int = 0
    """Index into `corpora` of data.json."""
    style: int = -1
    """Index into `styles` of data.json; -1: none."""
    masked: int = 0
    """What is read but not predicted, as bit flags: MASKED_VELOCITIES and MASKED_TEMPOS."""


MASKED_VELOCITIES = 1
"""All notes of the piece have the same velocity."""
MASKED_TEMPOS = 2
"""The only tempo is the default of a notation program, or that of files without a tempo."""


def shard_folders(folder: Path, count: int) -> list[Path]:
    """Return the folders of the shards of a split."""
    return [folder] if count == 1 else [folder / f"shard-{index:05}" for index in range(count)]


@dataclass(frozen=True, eq=False)
class Shard:
    """Tokens of some pieces, memory-mapped or in memory."""

    folder: Path | None
    """None: the shard is only in memory."""
    tokens: NDArray[np.uint16]
    offsets: NDArray[np.int64]
    """Start of each piece in `tokens`, then the end of the last: (pieces + 1,)."""
    bars: NDArray[np.int64]
    """Indices of the Bar tokens of all pieces, counted from the start of each piece."""
    bar_offsets: NDArray[np.int64]
    """Start of each piece in `bars`, then the end of the last: (pieces + 1,)."""
    pieces: NDArray[np.void]
    """Facts of each piece (pieces,) of type `PIECE`."""
    own_names: tuple[str, ...] = ()
    """Names of the pieces of a shard in memory; () if they are unknown."""

    @classmethod
    def load(cls, folder: Path) -> Shard:
        """Open the shard in a folder; two files stay open.

        Raises:
            TrainingError: the shard is damaged.
        """
        try:
            size = (folder / "tokens.uint16").stat().st_size // 2
            offsets, bar_offsets = (
                np.load(folder / f"{name}.npy") for name in ("offsets", "bar_offsets")
            )
            bars = np.load(folder / "bars.npy", mmap_mode="r").view(np.ndarray)
            pieces = np.load(folder / "pieces.npy")
            (folder / "names.txt").stat()
        except FileNotFoundError as error:
            name = Path(error.filename).name
            raise TrainingError(f"{folder}: damaged (no {name}); prepare again") from error
        except (ValueError, EOFError) as error:
            what = "a table cannot be read"
            raise TrainingError(f"{folder}: damaged ({what}); prepare again") from error
        for count, of_pieces, what in ((size, offsets, "tokens"), (len(bars), bar_offsets, "bars")):
            if count != of_pieces[-1]:
                raise TrainingError(
                    f"{folder}: found {count} {what}, expected {of_pieces[-1]}; prepare again"
                )
        if len(pieces) != len(offsets) - 1:
            raise TrainingError(
                f"{folder}: found {len(pieces)} rows in pieces.npy, expected {len(offsets) - 1}; "
                "prepare again"
            )
        if not size:
            return cls(folder, np.zeros(0, np.uint16), offsets, bars, bar_offsets, pieces)
        # a plain array: slicing a memmap is several times slower
        tokens = np.memmap(folder / "tokens.uint16", dtype="<u2", mode="r").view(np.ndarray)
        return cls(folder, tokens, offsets, bars, bar_offsets, pieces)

    @classmethod
    def of(
        cls, pieces: Sequence[NDArray[np.integer]], facts: Sequence[PieceFacts], bar: int
    ) -> Shard:
        """Return a shard of these pieces in memory; `bar` is the id of the Bar token."""
        bars = [np.flatnonzero(ids == bar) for ids in pieces]
        offsets, bar_offsets = (
            np.append(0, np.cumsum([len(part) for part in parts], dtype=np.int64))
            for parts in (pieces, bars)
        )
        return cls(
            None,
            np.concatenate([np.zeros(0, np.uint16), *(ids.astype(np.uint16) for ids in pieces)]),
            offsets,
            np.concatenate([np.zeros(0, np.int64), *bars]),
            bar_offsets,
            np.array([tuple(one) for one in facts], PIECE),
        )

    def only(self, kept: NDArray[np.bool_]) -> Shard:
        """Return the pieces for which `kept` (pieces,) is true.

        Their tokens are copied to memory.
        """
        indices, offsets, bar_offsets = np.flatnonzero(kept), self.offsets, self.bar_offsets
        tokens, bars = (
            np.concatenate([values[:0], *(values[of[i] : of[i + 1]] for i in indices)])
            for values, of in ((self.tokens, offsets), (self.bars, bar_offsets))
        )
        offsets, bar_offsets = (
            np.append(0, np.cumsum(np.diff(of)[indices])) for of in (offsets, bar_offsets)
        )
        names = self.names()
        return replace(
            self,
            folder=None,
            tokens=tokens,
            offsets=offsets,
            bars=bars,
            bar_offsets=bar_offsets,
            pieces=self.pieces[indices],
            own_names=tuple(names[i] for i in indices) if names else (),
        )

    def __reduce__(self) -> tuple[Callable[..., Shard], tuple[Any, ...]]:
        """Pickle only the folder; the receiving process maps the files again."""
        if self.folder is None:
            return Shard, tuple(getattr(self, one.name) for one in fields(self))
        return Shard.load, (self.folder,)

    def __len__(self) -> int:
        """Return the number of pieces."""
        return len(self.offsets) - 1

    def names(self) -> list[str]:
        """Return the names of the pieces; empty if they are unknown, in memory."""
        if self.folder is None:
            return [*self.own_names]
        text = (self.folder / "names.txt").read_text(encoding="utf-8", errors="replace")
        return text.removesuffix("\n").split("\n")


class ShardWriter:
    """Writes the pieces of a split one after another; memory holds the tables of one shard."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0
        folder.mkdir(parents=True)
        self._begin()

    def add(
        self,
        ids: NDArray[np.uint16],
        lengths: NDArray[np.int64],
        bars: NDArray[np.int64],
        num_bars: NDArray[np.int64],
        names: Sequence[str],
        pieces: NDArray[np.void],
    ) -> None:
        """Append pieces: the tokens of all and the number of each, and likewise their bars.

        `pieces` are their facts (pieces,) of type `PIECE`.
        """
        ends, bar_ends = (np.append(0, np.cumsum(sizes)) for sizes in (lengths, num_bars))
        first = 0
        while first < len(names):
            room = SHARD_TOKENS - self._filled  # negative after an oversized piece
            last = int(np.searchsorted(ends, ends[first] + room, side="right")) - 1
            if last <= first and self._filled:
                self._end()
                self._begin()
                continue
            last = max(last, first + 1)
            with (self._shard / "tokens.uint16").open("ab") as stream:
                stream.write(ids[ends[first] : ends[last]].tobytes())
            self._filled += int(ends[last] - ends[first])
            self._lengths.append(lengths[first:last])
            self._bars.append(bars[bar_ends[first] : bar_ends[last]])
            self._num_bars.append(num_bars[first:last])
            self._pieces.append(pieces[first:last])
            with (self._shard / "names.txt").open("ab") as stream:
                listed = "".join(f"{name}\n" for name in names[first:last])
                stream.write(listed.encode("utf-8", "surrogateescape"))
            first = last

    def close(self) -> int:
        """Finish the last shard; return the number of shards."""
        self._end()
        if self._count == 1:
            [only] = self._folder.iterdir()
            for path in only.iterdir():
                path.rename(self._folder / path.name)
            only.rmdir()
        return self._count

    def _begin(self) -> None:
        self._shard = self._folder / f"shard-{self._count:05}"
        self._shard.mkdir()
        (self._shard / "tokens.uint16").touch()
        (self._shard / "names.txt").touch()
        self._filled = 0
        self._lengths, self._bars, self._num_bars = ([np.zeros(0, np.int64)] for _ in range(3))
        self._pieces = [np.zeros(0, PIECE)]

    def _end(self) -> None:
        for name, sizes in (("offsets", self._lengths), ("bar_offsets", self._num_bars)):
            np.save(self._shard / f"{name}.npy", np.append(0, np.cumsum(np.concatenate(sizes))))
        np.save(self._shard / "bars.npy", np.concatenate(self._bars))
        np.save(self._shard / "pieces.npy", np.concatenate(self._pieces))
        self._count += 1
