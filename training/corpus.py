"""Memory-mapped tokens of a prepared corpus, and crops of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from training.augmentation import NOTHING, Augmentation
from training.errors import TrainingError
from training.files import read_json
from training.repeatable import generator

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from tokenization.tokenizer import Tokenizer

FORMAT_VERSION = 1


@dataclass(frozen=True, eq=False)
class Corpus:
    """Tokens of one split, memory-mapped."""

    tokens: NDArray[np.uint16]
    offsets: NDArray[np.int64]
    """Where each piece starts in `tokens`, and the end of the last: (pieces + 1,)."""
    bars: NDArray[np.int64]
    """Places of the Bar tokens of all pieces, each counted from its piece's start."""
    bar_offsets: NDArray[np.int64]
    """Where each piece's places start in `bars`: (pieces + 1,)."""

    @classmethod
    def load(cls, folder: Path, split: str) -> Corpus:
        """Tokens of a split of a prepared corpus.

        Raises:
            TrainingError: the folder holds no such prepared corpus.
        """
        facts = read_facts(folder)
        part = folder / split
        if not (part / "offsets.npy").exists():
            known = ", ".join(facts["splits"])
            raise TrainingError(f"{folder}: found no split {split!r}, expected one of {known}")
        size = (part / "tokens.uint16").stat().st_size // 2
        tokens = (
            np.memmap(part / "tokens.uint16", dtype="<u2", mode="r")
            if size
            else np.zeros(0, np.uint16)
        )
        try:
            tables = [np.load(part / f"{name}.npy") for name in ("offsets", "bars", "bar_offsets")]
        except (ValueError, EOFError) as error:
            raise TrainingError(f"{part}: damaged ({error}); prepare again") from error
        if tables[0][-1] != size:
            raise TrainingError(
                f"{part}: found {size} tokens, expected {tables[0][-1]}; prepare again"
            )
        return cls(tokens, tables[0], tables[1], tables[2])

    def __len__(self) -> int:
        """Number of pieces."""
        return len(self.offsets) - 1

    def piece(self, index: int) -> NDArray[np.int32]:
        """All tokens of a piece, from BOS to EOS."""
        return self.tokens[self.offsets[index] : self.offsets[index + 1]].astype(np.int32)

    def piece_bars(self, index: int) -> NDArray[np.int64]:
        """Places of a piece's Bar tokens within the piece."""
        return self.bars[self.bar_offsets[index] : self.bar_offsets[index + 1]]


def read_facts(folder: Path) -> dict[str, Any]:
    """What `data.json` of a prepared corpus holds.

    Raises:
        TrainingError: the folder holds no prepared corpus of this format.
    """
    path = folder / "data.json"
    if not path.is_file():
        raise TrainingError(
            f"{folder}: found no prepared corpus; make one with relpe-train prepare"
        )
    facts = read_json(path, ("format",), "prepare again")
    if facts.get("format") != FORMAT_VERSION:
        raise TrainingError(
            f"{path}: format {facts.get('format')}, expected {FORMAT_VERSION}; prepare again"
        )
    for name in ("vocabulary", "hash", "splits"):
        if name not in facts:
            raise TrainingError(f"{path}: damaged, found no {name!r}; prepare again")
    return facts


@dataclass(frozen=True)
class Crops:
    """Training examples: batch of step s is a function of (seed, s) alone."""

    corpus: Corpus
    tokenizer: Tokenizer
    length: int
    """Tokens that the model reads; examples have one more, the last one's target."""
    batch_size: int
    seed: int
    beginnings: float = 0.1
    """Share of the examples that are the beginning of a piece, with BOS."""
    transposition: tuple[int, int] = (-5, 6)
    """Least and greatest transposition, semitones."""
    augmentation: Augmentation = NOTHING
    """What else is changed."""

    def __post_init__(self) -> None:
        if not len(self.corpus):
            raise TrainingError("the corpus holds no piece to train on")

    def __getitem__(self, step: int) -> NDArray[np.int64]:
        """Batch of one step: (batch_size, length + 1), filled up with PAD."""
        return np.stack([self.example(step, row) for row in range(self.batch_size)])

    def example(self, step: int, row: int) -> NDArray[np.int64]:
        """One row of the batch of one step: (length + 1,)."""
        draw = generator(self.seed, step, "data", row)
        place = draw.integers(self.corpus.offsets[-1])
        piece = int(np.searchsorted(self.corpus.offsets, place, side="right")) - 1
        ids = self.crop(piece, self._draw_bar(piece, draw))
        low, high = self.transposition
        for _ in range(100):
            moved = self.tokenizer.transpose(ids, int(draw.integers(low, high + 1)))
            if moved is not None:
                ids = moved
                break
        ids = self.augmentation(ids, self.tokenizer, lambda: self._any_crop(draw), draw)
        ids = ids[: self.length + 1]
        padded = np.full(self.length + 1, self.tokenizer.vocabulary.ids["PAD"], np.int64)
        padded[: len(ids)] = ids
        return padded

    def _any_crop(self, draw: np.random.Generator) -> NDArray[np.integer]:
        piece = int(draw.integers(len(self.corpus)))
        return self.crop(piece, self._draw_bar(piece, draw))

    def _draw_bar(self, piece: int, draw: np.random.Generator) -> int:
        """First bar of a crop: 0 in `beginnings` of the cases.

        Bars with less than half an example left behind them are not drawn: most of the example
        would be padding.
        """
        starts = self.corpus.piece_bars(piece)
        total = int(self.corpus.offsets[piece + 1] - self.corpus.offsets[piece])
        last = int(np.searchsorted(starts, total - self.length // 2, side="right"))
        beginning = draw.random() < self.beginnings
        return 0 if beginning or last < 2 else int(draw.integers(1, last))

    def crop(self, piece: int, first_bar: int) -> NDArray[np.integer]:
        """At most length + 1 tokens of a piece from a bar on."""
        bars = self.corpus.piece_bars(piece)
        next_bar = int(np.searchsorted(bars, bars[first_bar] + self.length + 1))
        ids = self.corpus.piece(piece)
        ids = ids[: bars[next_bar]] if next_bar < len(bars) else ids
        return self.tokenizer.crop(ids, first_bar)[: self.length + 1]


def windows(corpus: Corpus, length: int) -> NDArray[np.int64]:
    """All pieces cut into windows of length + 1 tokens, filled up with PAD (0): (n, length + 1).

    Windows share one token, the last one's target and the next one's first input: so every token
    after a piece's first is a target once.
    """
    rows: list[NDArray[np.int64]] = []
    for index in range(len(corpus)):
        ids = corpus.piece(index)
        for start in range(0, len(ids) - 1, length):
            row = np.zeros(length + 1, np.int64)
            part = ids[start : start + length + 1]
            row[: len(part)] = part
            rows.append(row)
    return np.stack(rows) if rows else np.zeros((0, length + 1), np.int64)


def note_ids(tokenizer: Tokenizer) -> NDArray[np.int64]:
    """Ids of the tokens that stand for one note each."""
    kinds = ("Pitch_", "Drum_", "Note_Pitch_")
    names = tokenizer.vocabulary.names
    return np.array([i for i, name in enumerate(names) if name.startswith(kinds)], np.int64)
