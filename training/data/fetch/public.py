"""The public data sets that `relpe-train fetch` knows, with addresses and checksums."""

from __future__ import annotations

import re
from dataclasses import dataclass

from training.errors import TrainingError


@dataclass(frozen=True)
class PublicFile:
    """A file with a public address."""

    address: str
    checksum: str | None = None
    """`md5:...` as published; None: none is known."""

    @property
    def name(self) -> str:
        """The last part of the address."""
        return self.address.rpartition("/")[2]


@dataclass(frozen=True)
class PublicSet:
    """A data set: its files, and where they go."""

    files: tuple[PublicFile, ...]
    folder: str
    """Folder that exists afterwards in the folder of the data: the one that an archive contains, or
    that of files that are not archives."""
    next_step: str
    """How to use it, where DIR is the folder of the data."""
    source: str
    """Where checksums come from, or why there are none."""
    inside: bool = True
    """Whether an archive contains `folder`; if not, it is unpacked into it."""
    is_archive: bool = True
    """Whether the files are archives, which are unpacked and removed."""


_MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist"  # as in torchvision/datasets/mnist.py

_MNIST_CHECKSUMS = {
    "train-images-idx3": "md5:f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "train-labels-idx1": "md5:d53e105ee54ea40749a09fcbcd1e9432",
    "t10k-images-idx3": "md5:9fb629c4189551a2d022fa330f9573f3",
    "t10k-labels-idx1": "md5:ec29112dd5afa0611ce80d1b7f02629c",
}

SETS: dict[str, PublicSet] = {
    "mnist": PublicSet(
        tuple(PublicFile(f"{_MNIST}/{n}-ubyte.gz", md5) for n, md5 in _MNIST_CHECKSUMS.items()),
        "mnist",
        "relpe-train fit --config training/configs/images/mnist.yaml --data DIR/mnist",
        "torchvision 0.22.1",
        is_archive=False,
    ),
    "cifar10": PublicSet(
        (
            PublicFile(
                "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
                "md5:c58f30108f718f92721af3b95e74349a",
            ),
        ),
        "cifar-10-batches-py",
        "relpe-train fit --config training/configs/images/cifar10.yaml --data DIR",
        "torchvision 0.22.1",
    ),
    "imdb": PublicSet(
        (
            PublicFile(
                "https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",
                "md5:7c2ac02c03563afcf9b574c7e56c153a",
            ),
        ),
        "aclImdb",
        "relpe-train fit --config training/configs/lra/text.yaml --data DIR",
        "torchtext 0.18.0",
    ),
    "pop909": PublicSet(
        (
            PublicFile(
                "https://github.com/music-x-lab/POP909-Dataset/archive/refs/heads/master.zip"
            ),
        ),
        "POP909-Dataset-master",
        "relpe-train prepare --corpus DIR/POP909-Dataset-master/POP909 --output data/pop909",
        "GitHub makes the archive anew",
    ),
}
_SERIES = "ucr/"


def public_set(name: str) -> PublicSet:
    """Return the set of a name.

    The name is a key of `SETS`, or `ucr/` and the name of a set of the archive.

    Raises:
        TrainingError: the name is not known.
    """
    series = name.removeprefix(_SERIES)
    if series != name and re.fullmatch(r"[A-Za-z0-9_-]+", series):
        return PublicSet(
            (PublicFile(f"https://timeseriesclassification.com/aeon-toolkit/{series}.zip"),),
            series,
            f"relpe-train fit --config training/configs/series/gun_point.yaml --data DIR "
            f"--set task.name={series}",
            "the archive publishes none",
            inside=False,
        )
    if name not in SETS:
        raise TrainingError(
            f"{name}: not a data set that can be fetched; expected {', '.join(SETS)}, or "
            f"{_SERIES}NAME for the set NAME of the UCR and UEA archives, such as ucr/GunPoint"
        )
    return SETS[name]
