"""Settings for all tests: reproducible examples, no deadlines (machines are shared)."""

from __future__ import annotations

import gc

import pytest
import torch
from hypothesis import settings
from jaxtyping import install_import_hook
from threadpoolctl import threadpool_limits

for name, examples in (("default", 25), ("thorough", 100)):
    settings.register_profile(
        name, deadline=None, derandomize=True, max_examples=examples, print_blob=True
    )
settings.load_profile("default")
torch.set_num_threads(1)
# Threads of OpenBLAS wait for each other in a loop: in several processes, ten times as long.
threadpool_limits(1, "blas")
# check the shapes in signatures in every call
install_import_hook(
    [
        "relpe.attention.linear.attention",
        "tests.support.reference_linear",
        "tests.support.reference_stochastic",
    ],
    "beartype.beartype",
)


def pytest_collection_finish() -> None:
    """Keeps modules and test items out of garbage collection, most of whose time they would take.

    Both live until the end.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
