"""The user's pieces: read from MIDI files, and divided into those to learn and those held back."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from tokenization.analysis.bar_evidence import file_probability
from tokenization.errors import MidiError, TokenizerError
from tokenization.remi.remi import Remi
from training.data.copies.melody import melody_runs
from training.data.copies.placement import Pieces, place
from training.data.corpus import Corpus, note_ids
from training.data.reading import Reading, read_piece
from training.data.shards import PieceFacts, Shard
from training.data.sources import MemberError, Source
from training.errors import TrainingError

FEWEST_PIECES: Final = 5
HELD_BACK: Final = 0.15
"""Share of the pieces that are held back, at least one."""
MOST_HELD_BACK: Final = 20
_LEAST_TO_LEARN: Final = 0.5
"""Share of the pieces that must be left to learn if pieces with one melody stay together."""


class _Piece(NamedTuple):
    """A piece that can be used."""

    name: str
    ids: NDArray[np.int64]
    runs: NDArray[np.uint64]
    facts: PieceFacts


@dataclass(frozen=True)
class OwnPieces:
    """Pieces to learn and pieces that are held back."""

    train: Corpus
    held_back: Corpus
    names: tuple[str, ...]
    """Names of the pieces that are held back."""
    notes: int
    """Notes of the pieces to learn."""
    unused: Mapping[str, str]
    """Why files are not used, by name."""
    digest: str
    """SHA-256 of all tokens."""
    shares_melodies: bool
    """Whether pieces with one melody are on both sides, because most pieces have it."""


def read_own_pieces(paths: Sequence[Path], tokenizer: Remi) -> OwnPieces:
    """Read MIDI files, and folders and zip archives of MIDI files.

    Notes are counted in estimated beats where they do not follow those of the file. Of pieces with
    the same tokens, one is kept. About one piece in seven is held back: pieces of all lengths, and
    those that share a melody with them.

    Raises:
        TrainingError: a path cannot be read, or fewer than five different pieces can be used.
    """
    files = list(_files(paths))
    unused: dict[str, str] = {}
    pieces: list[_Piece] = []
    names: dict[bytes, str] = {}
    _check_enough(len(files), len(files), unused)
    for name, content in tqdm(files, desc="reading", unit="file", delay=2, leave=False):
        try:
            piece = _read(content, name, tokenizer)
        except (MemberError, MidiError, TokenizerError, TrainingError) as error:
            unused[name] = str(error)
            continue
        same = names.setdefault(piece.ids.tobytes(), name)
        if same != name:
            unused[name] = f"the same music as {same}"
        else:
            pieces.append(piece)
    _check_enough(len(pieces), len(files), unused)
    held_back, shares_melodies = _divided(pieces)
    of_notes = note_ids(tokenizer)
    train, held = (
        [piece for piece, is_held in zip(pieces, held_back, strict=True) if is_held == side]
        for side in (False, True)
    )
    return OwnPieces(
        train=_corpus(train, tokenizer),
        held_back=_corpus(held, tokenizer),
        names=tuple(piece.name for piece in held),
        notes=sum(int(np.isin(piece.ids, of_notes).sum()) for piece in train),
        unused=unused,
        digest=hashlib.sha256(b"".join(sorted(names))).hexdigest(),
        shares_melodies=shares_melodies,
    )


def _files(paths: Sequence[Path]) -> Iterator[tuple[str, bytes | MemberError]]:
    """Return the name and contents of each file, once each.

    Raises:
        TrainingError: a path is neither a file nor a folder.
    """
    given: set[Path] = set()
    for path in paths:
        if path.is_file() and path.suffix.lower() != ".zip":
            if path.resolve() not in given:
                yield str(path), path.read_bytes()
            given.add(path.resolve())
        elif not path.exists():
            raise TrainingError(f"{path}: no such file or folder, expected MIDI files")
        else:
            source = Source.open(path)
            for name, content in source.part(source.midi_names()).read():
                file = path / name
                if file.resolve() not in given:
                    yield str(file), content
                given.add(file.resolve())


def _read(content: bytes | MemberError, name: str, tokenizer: Remi) -> _Piece:
    if isinstance(content, MemberError):
        raise content
    read = read_piece(content, name, tokenizer, lambda file: Reading(file_probability(file) < 0.5))
    ids = np.asarray(read.sequence.ids, np.int64)
    if not np.isin(ids, note_ids(tokenizer)).any():
        raise TrainingError("it has no notes that the model can read")
    return _Piece(name, ids, melody_runs(read.file), PieceFacts(masked=read.masked))


def _check_enough(usable: int, given: int, unused: Mapping[str, str]) -> None:
    if usable >= FEWEST_PIECES:
        return
    if not unused:
        files = f"{given} MIDI file{'s' * (given != 1)}"
    else:
        name, why = next(iter(unused.items()))
        why = why if name in why else f"{name}: {why}"
        files = f"{given} files, of which {usable} can be used ({why})"
    raise TrainingError(
        f"--corpus: found {files}, expected at least {FEWEST_PIECES} different pieces; add more "
        "MIDI files"
    )


def _divided(pieces: Sequence[_Piece]) -> tuple[list[bool], bool]:
    """Return whether each piece is held back, and whether melodies are on both sides.

    The pieces are sorted by length; those in the middle of equal parts are held back.
    """
    total = len(pieces)
    count = min(max(round(HELD_BACK * total), 1), MOST_HELD_BACK)
    order = sorted(range(total), key=lambda index: (len(pieces[index].ids), pieces[index].name))
    held_out = {order[(2 * part + 1) * total // (2 * count)] for part in range(count)}
    splits = ["validation" if index in held_out else "train" for index in range(total)]
    placement = place(
        Pieces(
            names=[piece.name for piece in pieces],
            splits=splits,
            corpora=[0] * total,
            train_only=[False] * total,
            hashes=[piece.ids.tobytes() for piece in pieces],
            runs=[piece.runs for piece in pieces],
            num_runs=[np.array([len(piece.runs) for piece in pieces], np.int64)],
        )
    )
    held = [split == "validation" for split in placement.splits]
    if sum(held) > (1 - _LEAST_TO_LEARN) * total:
        return [index in held_out for index in range(total)], True
    return held, False


def _corpus(pieces: Sequence[_Piece], tokenizer: Remi) -> Corpus:
    bar = tokenizer.vocabulary.ids["Bar"]
    facts = [piece.facts for piece in pieces]
    shard = Shard.of([piece.ids for piece in pieces], facts, bar)
    return Corpus((shard,), ({"name": "", "weight": 1.0},))
