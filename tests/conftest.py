"""Settings for all tests: reproducible examples, no deadlines (machines are shared)."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path
from typing import get_args

import pytest
import torch
from filelock import FileLock
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


def pytest_collection_finish(session: pytest.Session) -> None:
    """Compiles steps once for all processes of a run, and keeps what lives until the end from gc.

    Most of the time of garbage collection would be that of modules and test items.
    """
    if "relpe.decoding.compiled" in sys.modules and "PYTEST_XDIST_WORKER" in os.environ:
        from relpe.decoding import compiled  # after the import hook
        from tests.support.small_models import tiny_decoder

        with FileLock(Path(session.config.option.basetemp).parent / "compiled.lock"):
            for precision in get_args(compiled.Precision):
                compiled.CompiledDecoder(tiny_decoder(), precision).warm_up()
            compiled.pointer.warm_up()
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
