"""Runs experiments in several processes, as torchrun does; tests start it as a script.

Usage: `launch.py WORLD JOBS`, where JOBS is a JSON list of [experiment, folder, stop]. Each
experiment runs in WORLD processes, forked after the imports to save time. They connect through a
store on a free port. If `stop` is a number, the last process receives SIGTERM when it draws the
rows of that step.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
import warnings
from pathlib import Path

import pytest
import torch
from torch.distributed import (
    TCPStore,  # pyright: ignore[reportPrivateImportUsage]  # public in its documentation
)

from tests.support.runs import stop_at
from training.experiment import build_experiment
from training.runs.fit import fit


def launch(world: int, experiment: dict[str, object], folder: Path, stop: int | None) -> int:
    """Run an experiment; return the sum of the exit statuses of its processes."""
    store = TCPStore("127.0.0.1", 0, world, is_master=True, wait_for_workers=False)
    children: list[int] = []
    for rank in range(world):
        child = os.fork()
        if child:
            children.append(child)
            continue
        os.environ |= {
            "TORCHELASTIC_RUN_ID": "test",
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(store.port),
            "WORLD_SIZE": str(world),
            "LOCAL_WORLD_SIZE": str(world),
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
        }
        code = 1
        try:
            if rank == world - 1 and stop is not None:
                stop_at(pytest.MonkeyPatch(), stop)
            result = fit(build_experiment(experiment), folder, show=False)
            code = 0 if result.rank == rank and (result.stopped_by is None) == (stop is None) else 3
        except Exception:  # noqa: BLE001 - the child must not run the code of its parent
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    return sum(os.waitpid(child, 0)[1] for child in children)


if __name__ == "__main__":
    warnings.simplefilter("error")
    torch.set_num_threads(1)
    jobs = json.loads(sys.argv[2])
    codes = [launch(int(sys.argv[1]), job, Path(folder), stop) for job, folder, stop in jobs]
    sys.exit(1 if any(codes) else 0)
