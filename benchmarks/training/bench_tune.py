"""Methods of `relpe-train tune`, compared at equal CPU time on pieces of several composers.

Run from the top of the repository, with the corpora of the mixtures in a folder:
`python -m benchmarks.training.bench_tune --from corpora --minutes 2`. The pieces are songs and
string quartets, which `piano` has not read and plays on a piano; of each composer, `--pieces` that
are not in a test split are drawn with a fixed seed. Prints the nats per note of the held-back
pieces before and after, and with `--original` those of the model's own validation music. Use one
thread (`OMP_NUM_THREADS=1`).
"""

from __future__ import annotations

import csv
import io
import random
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import get_args

from benchmarks.timing import run, table_output
from training.tuning.options import Method
from training.tuning.tune import LEARNING_RATES, TuneOptions, tune

COMPOSERS = {
    "Brahms": ("lieder", "brahms"),
    "Schubert": ("lieder", "schubert"),
    "Haydn": ("quartets", "haydn"),
}
"""Corpus of each composer, and a part of the composer's name in its table."""
_NOTES = range(200, 6001)


def main(
    from_: Path,
    *,
    model: str = "piano",
    minutes: float = 2.0,
    pieces: int = 30,
    composers: Sequence[str] = tuple(COMPOSERS),
    methods: Sequence[Method] = get_args(Method),
    learning_rates: Sequence[float] = (),
    original: Path | None = None,
) -> None:
    """Run the comparison."""
    columns = ("composer", "method", "learning rate", "before", "after", "change", "steps", "of")
    out = table_output(*columns, "original")
    for composer in composers:
        with tempfile.TemporaryDirectory() as folder:
            music = _extract(composer, from_, pieces, Path(folder) / "music")
            for method in methods:
                for rate in learning_rates or [LEARNING_RATES[method]]:
                    options = TuneOptions(
                        model=model,
                        corpus=(music,),
                        output=Path(folder) / f"{method}-{rate:g}",
                        minutes=minutes,
                        method=method,
                        learning_rate=rate,
                        original=original,
                        clock="cpu",
                    )
                    tuned = tune(options).tuned
                    old, new = tuned.original_before, tuned.original_after
                    forgot = "" if old is None or new is None else f"{new[0] / old[0] - 1:+.1%}"
                    nats = tuned.before.decoder, tuned.after.decoder, f"{-tuned.gain:+.1%}"
                    out(composer, method, rate, *nats, tuned.steps, tuned.all_steps, forgot)


def _extract(composer: str, corpora: Path, count: int, folder: Path) -> Path:
    """Write pieces of a composer to a folder."""
    corpus, name = COMPOSERS[composer]
    folder.mkdir()
    with zipfile.ZipFile(corpora / corpus / f"{corpus}.zip") as archive:
        members = {PurePosixPath(path).stem: path for path in archive.namelist()}
        table = io.StringIO(archive.read(members["pieces"]).decode("utf-8"))
        rows = [row for row in csv.DictReader(table, delimiter="\t") if _is_selected(row, name)]
        rows.sort(key=lambda row: row["name"])
        random.Random(0).shuffle(rows)
        for row in rows[:count]:
            (folder / f"{row['name']}.mid").write_bytes(archive.read(members[row["name"]]))
    return folder


def _is_selected(row: dict[str, str], composer: str) -> bool:
    return (
        composer in row["composer"].lower()
        and row["split"] != "test"
        and int(row["notes"]) in _NOTES
    )


if __name__ == "__main__":
    run(main)
