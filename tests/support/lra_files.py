"""Stand-ins of a few examples for the files of the Long Range Arena and of images."""

from __future__ import annotations

import gzip
import pickle
from pathlib import Path

import numpy as np


def write_cifar(folder: Path, *, binary: bool = False, count: int = 20) -> None:
    """The six files of CIFAR-10, each with `count` images."""
    place = folder / f"cifar-10-batches-{'bin' if binary else 'py'}"
    place.mkdir(parents=True)
    draws = np.random.default_rng(0)
    for stem in [f"data_batch_{n}" for n in range(1, 6)] + ["test_batch"]:
        labels = draws.integers(10, size=count)
        pixels = draws.integers(256, size=(count, 3072)).astype(np.uint8)
        if binary:
            rows = np.concatenate([labels[:, None].astype(np.uint8), pixels], 1)
            (place / f"{stem}.bin").write_bytes(rows.tobytes())
        else:
            content = {b"data": pixels, b"labels": labels.tolist(), b"batch_label": b"one"}
            (place / stem).write_bytes(pickle.dumps(content, protocol=2))


def write_mnist(folder: Path, *, compressed: bool = False, count: int = 40) -> None:
    """The four files of MNIST, each with `count` images."""
    folder.mkdir(parents=True, exist_ok=True)
    draws = np.random.default_rng(0)
    for stem in ("train", "t10k"):
        images = draws.integers(256, size=(count, 28, 28)).astype(np.uint8)
        labels = draws.integers(10, size=count).astype(np.uint8)
        for name, array in (("images-idx3", images), ("labels-idx1", labels)):
            sizes = np.array(array.shape, ">u4").tobytes()
            content = bytes([0, 0, 8, array.ndim]) + sizes + array.tobytes()
            end, content = (".gz", gzip.compress(content)) if compressed else ("", content)
            (folder / f"{stem}-{name}-ubyte{end}").write_bytes(content)


def write_lra(folder: Path, count: int = 24) -> None:
    """ListOps, Text, Retrieval and Image in the released layout."""
    listops = folder / "lra_release" / "lra_release" / "listops-1000"
    pairs = folder / "lra_release" / "lra_release" / "tsv_data"
    for place in (listops, pairs):
        place.mkdir(parents=True)
    rows = "( ( ( [MAX 2 ) 3 ) ] )\t3\n( ( ( [SM 9 ) ( ( ( [MIN 4 ) 8 ) ] ) ) ] )\t3\n"
    for name in ("train", "val", "test"):
        (listops / f"basic_{name}.tsv").write_text("Source\tTarget\n" + rows * (count // 2))
    for name in ("train", "eval", "test"):
        lines = [f'{n % 2}\ta{n}\tb{n}\tfirst text {n}\ta "second" one\n' for n in range(count)]
        (pairs / f"new_aan_pairs.{name}.tsv").write_text("".join(lines))
    for name in ("train", "test"):
        for side in ("neg", "pos"):
            place = folder / "aclImdb" / name / side
            place.mkdir(parents=True)
            for number in range(count):
                (place / f"{number}_7.txt").write_text(f"{side} {number} é")
    write_cifar(folder)
