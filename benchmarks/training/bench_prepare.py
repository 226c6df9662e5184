"""Cost of preparing and reading a corpus of many files, as CSV.

`python -m benchmarks.training.bench_prepare files [--count 20000] [--corpus ZIP --include PATTERN]
[--tokenizer piano-2] [--data FOLDER ...] > x.csv`: prepares files. Draws training examples from the
result and from other prepared corpora, without augmentation and with that of the released groove
model. Without `--corpus`, files are generated: 24 bars of random notes each, in 250 folders.
`python -m benchmarks.training.bench_prepare names [--count 1000000] > x.csv`: finds `--count` names
in a folder and in a zip archive, assigns them to splits and plans the work.
`python -m benchmarks.training.bench_prepare shards [--count 1000] > x.csv`: joins `--count` batches
of a million tokens, 2 MB each.

Rates are per CPU second of one process, so that other work on the machine matters little. Each
measurement runs in a separate process. Its memory is in MB: `anonymous` is allocated memory at the
end, `mapped` are pages of files, which the system can reclaim, `peak` is the maximum of their sum.
"""

from __future__ import annotations

import csv
import json
import sys
import tempfile
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from benchmarks.timing import csv_output, in_new_process, run, shown
from tokenization.midi import write_midi
from tokenization.presets import PRESETS, load_tokenizer
from tokenization.remi.losses import Losses
from tokenization.score import Score, Track
from training.data.augmentation import NOTHING, Augmentation
from training.data.corpus import Corpus
from training.data.corpus_writer import COUNTS, Encoded, Member, join
from training.data.documents import Documents
from training.data.mixtures.listing import Listing
from training.data.mixtures.mixture import CorpusConfig
from training.data.prepare import plan_batches, prepare

if TYPE_CHECKING:
    from collections.abc import Callable

GROOVE = Augmentation(program=0.5, drums=0.3, dropped=0.1, velocity=0.5, tempo=1.25)


def random_score(seed: int, bars: int) -> Score:
    """Return random notes, eight per bar."""
    draw, size = np.random.default_rng(seed), 8 * bars
    onsets = np.sort(draw.integers(0, bars * 48, size)) * 40
    lengths, velocities = draw.integers(1, 25, size) * 40, draw.integers(40, 100, size)
    notes = np.stack([onsets, lengths, draw.integers(36, 96, size), velocities], 1)
    return Score(480, (Track(notes),))


def make_files(folder: Path, count: int) -> None:
    """Write files of 24 bars in 250 folders."""
    for number in range(count):
        path = folder / f"{number % 250:03}" / f"{number:07}.mid"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(write_midi(random_score(number, 24)))


def memory_mb() -> dict[str, float]:
    """Return this process's memory in MB: allocated, mapped files, and the peak of the sum."""
    status = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    names = {"anonymous": "RssAnon", "mapped": "RssFile", "peak": "VmHWM"}
    return {name: int(status[key].split()[0]) / 1e3 for name, key in names.items()}


def planning(path: Path, output: Path) -> dict[str, Any]:
    """Find the names of all files, and assign them to splits and batches."""
    listing = Listing.of(path.name, CorpusConfig(source=str(path)), Path(), None)
    batches = plan_batches([listing], output, PRESETS["piano-2"].build())
    return {"files": sum(len(batch.source.names) for batch in batches)}


def joining(batches: list[Path], folder: Path) -> dict[str, Any]:
    """Join batches to the split train of a corpus."""
    folder.mkdir()
    encoded = [Encoded(batch, 0, "train") for batch in batches]
    facts = join(encoded, [Member()], [], folder, "")["splits"]["train"]
    return {key: facts[key] for key in ("files", "tokens")}


def preparing(path: Path, include: str | None, output: Path, tokenizer: str) -> dict[str, Any]:
    """Convert all files to tokens, in one process."""
    data = prepare(path, output, PRESETS[tokenizer].build(), include=include, workers=1)
    facts = data["splits"].values()
    return {key: sum(split[key] for split in facts) for key in ("files", "tokens", "notes", "bars")}


def reading(folder: Path, augmentation: Augmentation, steps: int) -> dict[str, Any]:
    """Draw training examples as one process of the groove recipe does."""
    examples = Documents(
        corpus=Corpus.load(folder, "train"),
        tokenizer=load_tokenizer(folder),
        length=2048,
        batch_size=2,
        seed=0,
        augmentation=augmentation,
    )
    tokens = sum(int((examples[step][:, 1:] != 0).sum()) for step in range(steps))
    return {"tokens": tokens} | memory_mb()


def _timed(call: Callable[..., dict[str, Any]], arguments: tuple[Any, ...]) -> dict[str, Any]:
    begin, wall = time.process_time(), time.monotonic()
    figures = call(*arguments)
    seconds = {"cpu_seconds": time.process_time() - begin, "seconds": time.monotonic() - wall}
    return memory_mb() | figures | seconds


def measured(call: Callable[..., dict[str, Any]], *arguments: object) -> dict[str, Any]:
    """Return the result of a call in a fresh process, with its seconds and memory."""
    return in_new_process(_timed, call, arguments)


COLUMNS = (
    "files",
    "tokens",
    "notes",
    "bars",
    "cpu_seconds",
    "seconds",
    "anonymous",
    "mapped",
    "peak",
)


def show(what: str, figures: dict[str, Any]) -> None:
    """Print a line of the table."""
    rates = [figures[key] / figures["cpu_seconds"] for key in ("files", "tokens") if key in figures]
    csv.writer(sys.stdout).writerow(map(shown, [what, *map(figures.get, COLUMNS), *rates]))
    sys.stdout.flush()


def read_all(folder: Path, label: str, steps: int) -> None:
    """Draw examples of a prepared corpus."""
    show(f"read {label}", measured(reading, folder, NOTHING, steps))
    if load_tokenizer(folder).config.kind == PRESETS["multitrack-2"].kind:
        show(f"read {label}, augmented", measured(reading, folder, GROOVE, steps))


def bench_files(
    work: Path,
    count: int | None,
    corpus: Path | None,
    include: str | None,
    tokenizer: str,
    data: Sequence[Path],
    steps: int,
) -> None:
    """Prepare files, and read them."""
    if corpus is None:
        corpus = work / "midi"
        make_files(corpus, count or 20_000)
    whole = measured(preparing, corpus, include, work / "whole", tokenizer)
    show("prepare", whole)
    size = sum(path.stat().st_size for path in (work / "whole").rglob("*") if path.is_file())
    show(f"on disk: {size / whole['tokens']:.3f} bytes a token", {})
    read_all(work / "whole", "the prepared corpus", steps)
    for folder in data:
        read_all(folder, folder.name, steps)


def bench_names(work: Path, count: int) -> None:
    """Find names, assign them to splits and plan the work."""
    names = [f"{n % 4096:03x}/{n * 2654435761 % 2**64:016x}{n:016x}.mid" for n in range(count)]
    with zipfile.ZipFile(work / "midi.zip", "w") as archive:
        for name in names:
            archive.writestr(zipfile.ZipInfo(name), b"MThd")
    show("plan an archive", measured(planning, work / "midi.zip", work / "out"))
    for name in names:
        path = work / "midi" / name
        if not path.parent.exists():
            path.parent.mkdir(parents=True)
        path.touch()
    show("plan a folder", measured(planning, work / "midi", work / "out"))


def bench_shards(work: Path, count: int) -> None:
    """Join batches of 200 pieces of 5,000 tokens, 130 bars each."""
    tokenizer = PRESETS["piano-2"].build()
    piece = np.asarray(tokenizer.encode(random_score(0, 130)).ids).astype("<u2")
    bars = np.flatnonzero(piece == tokenizer.vocabulary.ids["Bar"])
    ids = np.tile(piece, (200, 1))
    batches = [work / f"batch-{number}.npz" for number in range(count)]
    for number, path in enumerate(batches):
        ids[:, -3], ids[:, -2] = number % 500, 5 + number // 500  # no piece is a copy
        ids[:, -4] = np.arange(200)
        np.savez(
            path,
            ids=ids.ravel(),
            lengths=np.full(200, len(piece)),
            bars=np.tile(bars, 200),
            num_bars=np.full(200, len(bars)),
            runs=np.zeros(0, np.uint64),
            num_runs=np.zeros(200, np.int64),
            masked=np.zeros(200, np.uint8),
            counts=np.zeros((200, 1 + len(COUNTS) + len(Losses._fields)), np.int64),
            texts=np.array(json.dumps([[f"{number}-{n}.mid" for n in range(200)], {}, {}])),
        )
    show("join", measured(joining, batches, work / "out"))


def main(
    what: Literal["files", "names", "shards"],
    /,
    *,
    count: int | None = None,
    corpus: Path | None = None,
    include: str | None = None,
    tokenizer: str = "piano-2",
    data: Sequence[Path] = (),
    steps: int = 200,
) -> None:
    """Measure and print."""
    csv_output("what", *COLUMNS, "files_per_cpu_second", "tokens_per_cpu_second")
    with tempfile.TemporaryDirectory() as name:
        if what == "names":
            bench_names(Path(name), count or 1_000_000)
        elif what == "shards":
            bench_shards(Path(name), count or 1000)
        else:
            bench_files(Path(name), count, corpus, include, tokenizer, data, steps)


if __name__ == "__main__":
    run(main)
