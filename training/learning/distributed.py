"""Distributed set-up and collective operations.

Each process has one device. With DDP every process holds all weights (Li et al., 2020); with FSDP
it holds a shard of each weight (Zhao et al., 2023). The processes divide the rows of a batch, and
means are over the tokens of all processes, so that, apart from rounding, a step does not depend on
their number.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from lightning_fabric import Fabric
from lightning_fabric.plugins.environments.cluster_environment import ClusterEnvironment
from lightning_fabric.plugins.environments.lightning import LightningEnvironment
from lightning_fabric.plugins.environments.slurm import SLURMEnvironment
from lightning_fabric.strategies.ddp import DDPStrategy
from lightning_fabric.strategies.model_parallel import ModelParallelStrategy
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

from training.config import TrainerConfig
from training.errors import TrainingError


class Processes(NamedTuple):
    """Number of processes of a run, and the rank of this one."""

    devices: int
    """Processes per node."""
    nodes: int
    rank: int
    """Rank of this process; rank 0 writes the files."""

    @property
    def world(self) -> int:
        """Number of all processes."""
        return self.devices * self.nodes


ALONE = Processes(1, 1, 0)


def find_processes(settings: TrainerConfig, environment: Mapping[str, str]) -> Processes:
    """Find the processes started by torchrun or by SLURM's srun, else those of the settings.

    Raises:
        TrainingError: the settings contradict the processes that were started.
    """
    if "TORCHELASTIC_RUN_ID" in environment:
        world, local = int(environment["WORLD_SIZE"]), int(environment["LOCAL_WORLD_SIZE"])
        by, processes = "torchrun", Processes(local, world // local, int(environment["RANK"]))
    elif _started_by_srun(environment):
        world, nodes = int(environment["SLURM_NTASKS"]), int(environment.get("SLURM_NNODES", 1))
        if world % nodes:
            raise TrainingError(
                f"SLURM has started {world} tasks on {nodes} nodes, expected the same number on "
                "each; set --ntasks-per-node"
            )
        by, processes = "srun", Processes(world // nodes, nodes, int(environment["SLURM_PROCID"]))
    else:
        devices, nodes = settings.devices or 1, settings.nodes or 1
        node, local = (int(environment.get(name, 0)) for name in ("NODE_RANK", "LOCAL_RANK"))
        return Processes(devices, nodes, node * devices + local if devices * nodes > 1 else 0)
    for name in ("devices", "nodes"):
        asked, started = getattr(settings, name), getattr(processes, name)
        if asked not in (None, started):
            raise TrainingError(
                f"trainer.{name} is {asked}, but {by} has started {started}; leave it out"
            )
    return processes


def _started_by_srun(environment: Mapping[str, str]) -> bool:
    """Return whether srun started several tasks of which this is one.

    A single task, or an interactive shell of an allocation, starts the processes itself.
    """
    interactive = environment.get("SLURM_JOB_NAME") in ("bash", "interactive")
    several = int(environment.get("SLURM_NTASKS", 1)) > 1
    return several and "SLURM_PROCID" in environment and not interactive


def rows_of(processes: Processes, batch_size: int, accumulate: int) -> range:
    """Return the rows of each batch that belong to this process.

    Raises:
        TrainingError: the rows cannot be divided among the processes and micro-batches.
    """
    parts = processes.world * accumulate
    if batch_size % parts:
        raise TrainingError(
            f"task.batch_size is {batch_size}, expected a multiple of {parts}: there are "
            f"{processes.world} processes with {accumulate} micro-batches each (trainer.accumulate)"
        )
    rows = batch_size // processes.world
    return range(processes.rank * rows, (processes.rank + 1) * rows)


def choose_strategy(settings: TrainerConfig, processes: Processes) -> Any:  # noqa: ANN401
    """Return the strategy for Fabric."""
    if settings.strategy == "fsdp":
        return ModelParallelStrategy(shard, processes.world, tensor_parallel_size=1)
    if processes.world == 1 and settings.strategy == "auto":
        return "auto"
    # without find_unused_parameters, DDP rebuilds its buckets after the first step; this changes
    # the order of sums, and a resumed run would differ
    return DDPStrategy(find_unused_parameters=True)


def choose_environment(
    processes: Processes, environment: Mapping[str, str]
) -> ClusterEnvironment | None:
    """Tell Fabric how the processes were started; None: by torchrun, which it detects.

    If SLURM started a single task, Fabric starts the other processes.
    """
    if "TORCHELASTIC_RUN_ID" in environment:
        return None
    if not _started_by_srun(environment):
        return LightningEnvironment()
    # required by Fabric; srun with only --ntasks does not set it
    os.environ.setdefault("SLURM_NTASKS_PER_NODE", str(processes.devices))
    return SLURMEnvironment()


def leave_signals(worker: int) -> None:
    """Ignore Ctrl-C in a data-loader worker, which the current step may still need."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def summed(fabric: Fabric, values: Tensor) -> Tensor:
    """Return sum of a tensor over all processes, on its device; every process must call this."""
    return values if fabric.world_size == 1 else fabric.strategy.all_reduce(values, reduce_op="sum")


def total(fabric: Fabric, *values: float) -> list[float]:
    """Return the sums over all processes, in float64; every process must call this."""
    mine = torch.tensor(values, dtype=torch.float64)
    return summed(fabric, mine if fabric.world_size == 1 else mine.to(fabric.device)).tolist()


def shard(module: nn.Module, mesh: Any) -> nn.Module:  # noqa: ANN401 - a DeviceMesh of Fabric's
    """Shard the `decoder` of a module among the processes, first block by block, then the rest.

    Raises:
        TrainingError: the encoding has a window, whose widths cannot be sharded.
    """
    from torch.distributed.fsdp import fully_shard

    decoder: Any = module.decoder
    if decoder.training_window() is not None:
        raise TrainingError(
            "trainer.strategy is fsdp, but the encoding has a window, whose widths cannot be "
            "sharded; use ddp"
        )
    mesh = mesh["data_parallel"]
    for block in decoder.blocks:
        fully_shard(block, mesh=mesh)
    # shard the rest too, so that weights and their average are always sharded between calls
    fully_shard(decoder, mesh=mesh, reshard_after_forward=True)
    return module


def whole(tensor: Tensor) -> Tensor:
    """Return a whole tensor from one that may be sharded.

    If it is, every process must call this.
    """
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def shard_like(tensor: Tensor, other: Tensor) -> Tensor:
    """Shard a whole tensor like `other`, on its device."""
    tensor = tensor.to(other.device)
    if isinstance(other, DTensor) and not isinstance(tensor, DTensor):
        return distribute_tensor(tensor, other.device_mesh, other.placements)
    return tensor
