"""Writing of a corpus from batches of tokens: shards, lists of rejected files, data card."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from tokenization.remi.losses import Losses
from tokenization.tokenizer import Tokenizer
from training.data.shards import ShardWriter

COUNTS = ("dropped", "clipped", "merged", "tempos_scaled", "tempos_clipped")
"""Changes to notes and tempos by the encoding, counted per split. `Losses` has others."""
LISTS = ("refused", "damaged", "copies")
"""Lists of files in `data.json`: those that cannot be read, those read only in part, and those left
out because a more important split has the same tokens."""
LISTED = 100
"""Maximum entries of a list in `data.json` and on the card; `<list>.txt` has all of them."""


def join(
    batches: Mapping[str, Sequence[Path]],
    unassigned: Sequence[str],
    folder: Path,
    vocabulary_hash: str,
) -> dict[str, Any]:
    """Write the batches of each split as one corpus; return its entries for `data.json`.

    A batch is an npz file with the `ids` of all pieces and their `lengths`, the `bars` of all
    pieces and their numbers `num_bars`, the `counts` of notes, of `COUNTS` and of `Losses` of each
    piece, and `texts`: names, refused files and damaged files as JSON. The hash covers the
    vocabulary and all tokens, and does not depend on shards and batches.

    A piece is left out if the same tokens are in another split that measures a model: test takes
    precedence over validation, and both over train.
    """
    lists = {name: _List(folder / f"{name}.txt") for name in (*LISTS, "unassigned")}
    lists["unassigned"].add(dict.fromkeys(unassigned, ""))
    digest = hashlib.sha256(vocabulary_hash.encode())
    facts: dict[str, Any] = {}
    total = sum(map(len, batches.values()))
    with tqdm(total=total, desc="joining", unit="batch", delay=2) as bar:
        kept_in = _splits_of_pieces(batches)
        for split, paths in batches.items():
            writer = _SplitWriter(split, folder / split, kept_in, lists)
            for path in paths:
                digest.update(writer.add(path))
                bar.update()
            facts[split] = writer.close()
    return {
        "vocabulary": vocabulary_hash,
        "hash": digest.hexdigest(),
        "splits": facts,
        "listed": {name: some.count for name, some in lists.items()},
        **{name: lists[name].first for name in LISTS},
        "unassigned": [*lists["unassigned"].first],
    }


def _splits_of_pieces(batches: Mapping[str, Sequence[Path]]) -> dict[bytes, str]:
    """The split that keeps a piece, by the hash of its tokens, unless it is the split train."""
    splits = sorted(
        (split for split in batches if split != "train"), key=lambda split: split == "validation"
    )
    kept_in: dict[bytes, str] = {}
    for split in splits:
        for path in batches[split]:
            with np.load(path) as batch:
                for found in _hashes(batch["ids"], batch["lengths"]):
                    kept_in.setdefault(found, split)
    return kept_in


def _hashes(ids: NDArray[np.uint16], lengths: NDArray[np.int64]) -> list[bytes]:
    """A hash of the tokens of each piece."""
    ends = np.cumsum(lengths).tolist()
    content, starts = ids.tobytes(), [0, *ends][:-1]
    return [
        hashlib.blake2b(content[2 * start : 2 * end], digest_size=16).digest()
        for start, end in zip(starts, ends, strict=True)
    ]


class _SplitWriter:
    """Writes the batches of one split, without the pieces that another split keeps."""

    def __init__(
        self,
        split: str,
        folder: Path,
        kept_in: Mapping[bytes, str],
        lists: Mapping[str, _List],
    ) -> None:
        self._split, self._kept_in, self._lists = split, kept_in, lists
        self._writer = ShardWriter(folder)
        self._facts = dict.fromkeys(("files", "tokens", "notes", "bars", *COUNTS), 0)
        self._lost = dict.fromkeys(Losses._fields, 0)

    def add(self, path: Path) -> bytes:
        """Write a batch; return its tokens as bytes."""
        with np.load(path) as batch:
            ids, lengths, bars, num_bars, counts = (
                batch[key] for key in ("ids", "lengths", "bars", "num_bars", "counts")
            )
            names, refused, damaged = json.loads(str(batch["texts"]))
        others = [self._kept_in.get(found, self._split) for found in _hashes(ids, lengths)]
        kept = np.array([other == self._split for other in others], bool)
        copies = {
            name: f"the same music as a piece of the split {other}, which keeps it"
            for name, other in zip(names, others, strict=True)
            if other != self._split
        }
        if copies:
            ids, bars = ids[np.repeat(kept, lengths)], bars[np.repeat(kept, num_bars)]
            lengths, num_bars, counts = lengths[kept], num_bars[kept], counts[kept]
            names = [name for name in names if name not in copies]
        self._writer.add(ids, lengths, bars, num_bars, names)
        for name, more in (("refused", refused), ("damaged", damaged), ("copies", copies)):
            self._lists[name].add(more)
        self._facts["files"] += len(names)
        self._facts["tokens"] += len(ids)
        self._facts["bars"] += len(bars)
        sums = iter(counts.sum(0).tolist())
        for key, count in zip(("notes", *COUNTS), sums, strict=False):
            self._facts[key] += count
        for key, count in zip(self._lost, sums, strict=True):
            self._lost[key] += count
        return ids.tobytes()

    def close(self) -> dict[str, Any]:
        """Finish the split; return its counts and its number of shards."""
        return self._facts | {"shards": self._writer.close(), "losses": self._lost}


class _List:
    """A list of files with reasons: the first entries in memory, all entries in a text file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.first: dict[str, str] = {}
        self.count = 0

    def add(self, reasons: Mapping[str, str]) -> None:
        """Append files; a list without entries has no text file."""
        for name in [*reasons][: LISTED - len(self.first)]:
            self.first[name] = reasons[name]
        self.count += len(reasons)
        if reasons:
            lines = (f"{name}: {why}" if why else name for name, why in reasons.items())
            text = "".join(line.replace("\n", "\\n") + "\n" for line in lines)
            with self._path.open("ab") as stream:
                stream.write(text.encode("utf-8", "surrogateescape"))


def card(data: dict[str, Any], tokenizer: Tokenizer) -> str:
    """The data card of a corpus in Markdown; `data` is the contents of `data.json`."""
    counts = data["listed"]
    columns = ("files", "bars", "notes", "tokens", *COUNTS)
    rows = [
        f"| {split} | "
        + " | ".join(f"{facts[key]:,}" for key in columns)
        + f" | {facts['tokens'] / max(facts['notes'], 1):.2f} |"
        for split, facts in data["splits"].items()
    ]
    refused, damaged, copies = (_listed(data, key) for key in LISTS)
    taken = f", files {data['include']}" if data["include"] else ""
    return "\n".join(
        [
            f"# {data['source']} as tokens",
            "",
            f"Made by `relpe-train prepare` from {data['source']}{taken}, with the tokenizer "
            f"`{tokenizer.config.kind}` of {len(tokenizer.vocabulary)} ids. Hash of all tokens: "
            f"`{data['hash']}`.",
            "",
            f"| split | {' | '.join(key.replace('_', ' ') for key in columns)} | tokens per note |",
            "|---|" + "---|" * (len(columns) + 1),
            *rows,
            "",
            "Dropped: notes outside the pitch range. Clipped: notes shortened to the maximum "
            "duration. Merged: notes left out because another note has the same pitch and "
            "position. Tempos scaled: tempos outside 30 to 240, halved or doubled together with "
            "their beats, so that the music keeps its speed. Tempos clipped: tempos that this does "
            "not bring into the range.",
            "",
            "Tokens do not contain:",
            "",
            "| split | drum notes | sustain pedal changes | other controllers | pitch bends | "
            "tempos rounded | mean shift of a note | mean shift of a file's end |",
            "|---|---|---|---|---|---|---|---|",
            *(_losses(split, facts) for split, facts in data["splits"].items()),
            "",
            f"{counts['refused']:,} files refused, {counts['unassigned']:,} in no split.",
            "",
            refused,
            f"{counts['damaged']:,} files read in part.",
            "",
            damaged,
            f"{counts['copies']:,} copies of pieces of another split left out.",
            "",
            copies,
        ]
    )


def _losses(split: str, facts: dict[str, Any]) -> str:
    """The row of a split in the table of losses."""
    lost = Losses(**facts["losses"])
    numbers = " | ".join(f"{number:,}" for number in lost[:-2])
    shift = lost.onset_microseconds / 1e3 / max(facts["notes"], 1)
    drift = lost.drift_milliseconds / 1e3 / max(facts["files"], 1)
    return f"| {split} | {numbers} | {shift:.1f} ms | {drift:.2f} s |"


def _listed(data: dict[str, Any], key: str) -> str:
    """The first entries of a list, and the file that has the others."""
    first = "".join(f"- {name}: {reason}\n" for name, reason in data[key].items())
    more = data["listed"][key] - len(data[key])
    return first + (f"- and {more:,} more in `{key}.txt`\n" if more else "")
