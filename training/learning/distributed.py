"""Processes of a run: how many there are and how they came to be, and what they tell one another.

A process has one device. Lightning's strategies connect them: DDP keeps all weights in each
(Li et al., 2020), FSDP a share of every weight (Zhao et al., 2023). What a step computes does not
depend on their number but for rounding: they take the rows of one batch among themselves, and all
means are over the tokens of all.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from typing import Any, NamedTuple

import pytorch_lightning as pl
import torch
from lightning_fabric.plugins.environments.slurm import SLURMEnvironment
from pytorch_lightning.strategies import DDPStrategy, ModelParallelStrategy
from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor

from relpe.models.decoder import Decoder
from training.config import TrainerConfig
from training.errors import TrainingError


class Processes(NamedTuple):
    """The processes of a run, and which of them this one is."""

    devices: int
    """Of each node."""
    nodes: int
    rank: int
    """0 writes the files."""

    @property
    def world(self) -> int:
        """All of them."""
        return self.devices * self.nodes


ALONE = Processes(1, 1, 0)


def find_processes(settings: TrainerConfig, environment: Mapping[str, str]) -> Processes:
    """Those that torchrun or SLURM's srun has started, else those that the settings ask for.

    Raises:
        TrainingError: the settings contradict what was started.
    """
    if "TORCHELASTIC_RUN_ID" in environment:
        world, local = int(environment["WORLD_SIZE"]), int(environment["LOCAL_WORLD_SIZE"])
        by, found = "torchrun", Processes(local, world // local, int(environment["RANK"]))
    elif int(environment.get("SLURM_NTASKS", 1)) > 1 and _is_a_task(environment):
        world, nodes = int(environment["SLURM_NTASKS"]), int(environment.get("SLURM_NNODES", 1))
        if world % nodes:
            raise TrainingError(
                f"SLURM has started {world} tasks on {nodes} nodes, expected as many on each; set "
                "--ntasks-per-node"
            )
        by, found = "srun", Processes(world // nodes, nodes, int(environment["SLURM_PROCID"]))
    else:
        devices, nodes = settings.devices or 1, settings.nodes or 1
        node, local = (int(environment.get(name, 0)) for name in ("NODE_RANK", "LOCAL_RANK"))
        return Processes(devices, nodes, node * devices + local if devices * nodes > 1 else 0)
    for name in ("devices", "nodes"):
        asked, started = getattr(settings, name), getattr(found, name)
        if asked not in (None, started):
            raise TrainingError(
                f"trainer.{name} is {asked}, {by} has started {started}; leave it out"
            )
    return found


def _is_a_task(environment: Mapping[str, str]) -> bool:
    """Whether srun has started this process, and no shell of an allocation by hand."""
    interactive = environment.get("SLURM_JOB_NAME") in ("bash", "interactive")
    return "SLURM_PROCID" in environment and not interactive


def rows_of(processes: Processes, batch_size: int, accumulate: int) -> range:
    """Rows of a step's batch that a process takes.

    Raises:
        TrainingError: rows do not divide among processes and micro-batches.
    """
    parts = processes.world * accumulate
    if batch_size % parts:
        raise TrainingError(
            f"task.batch_size is {batch_size}, expected a multiple of {parts}: of "
            f"{processes.world} processes with {accumulate} micro-batches each (trainer.accumulate)"
        )
    rows = batch_size // processes.world
    return range(processes.rank * rows, (processes.rank + 1) * rows)


def choose_strategy(settings: TrainerConfig, processes: Processes) -> Any:  # noqa: ANN401
    """Lightning's strategy, as its Trainer takes it."""
    if settings.strategy == "fsdp":
        return ModelParallelStrategy(
            data_parallel_size=processes.world,
            tensor_parallel_size=1,
            save_distributed_checkpoint=False,
        )
    if processes.world == 1 and settings.strategy == "auto":
        return "auto"
    # Buckets stay as they are while unused parameters are looked for; otherwise the second step
    # would sum in another order than the first, and a resumed run in another than a whole one.
    return DDPStrategy(find_unused_parameters=True)


def choose_plugins(processes: Processes, environment: Mapping[str, str]) -> list[Any]:
    """SLURM without Lightning's own checkpoints and requeueing: `last.ckpt` is the one there is."""
    by_slurm = "TORCHELASTIC_RUN_ID" not in environment and _is_a_task(environment)
    if not by_slurm or processes.world == 1:
        return []
    # Lightning asks for it, and srun with --ntasks alone does not say it
    os.environ.setdefault("SLURM_NTASKS_PER_NODE", str(processes.devices))
    return [SLURMEnvironment(auto_requeue=False)]


def leave_signals(worker: int) -> None:
    """Let a process that draws examples live on a Ctrl-C until the run has ended its step."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def total(trainer: pl.Trainer, *values: float | Tensor) -> list[float]:
    """Sums over all processes, which all have to ask for them; in float64."""
    mine = torch.tensor([float(value) for value in values], dtype=torch.float64)
    if trainer.world_size > 1:
        strategy = trainer.strategy
        mine = strategy.reduce(mine.to(strategy.root_device), reduce_op="sum")
        assert isinstance(mine, torch.Tensor)
    return mine.tolist()


def any_of(trainer: pl.Trainer, condition: object) -> bool:
    """Whether it holds in any of the processes, which all have to ask."""
    return total(trainer, float(bool(condition)))[0] > 0


def shard(decoder: Decoder, mesh: Any) -> None:  # noqa: ANN401 - a DeviceMesh of Lightning's
    """Give each process its share of the weights: block by block, and of all the rest.

    Raises:
        TrainingError: the encoding has a window of learned width, which is read as a whole.
    """
    from torch.distributed.fsdp import fully_shard

    if decoder.encoding.training_window() is not None:
        raise TrainingError(
            "trainer.strategy is fsdp, but the encoding has a window, whose widths every process "
            "needs whole; use ddp"
        )
    mesh = mesh["data_parallel"]
    for block in decoder.blocks:
        fully_shard(block, mesh=mesh)
    # the rest as well: between two calls there are shares alone, of weights and their mean
    fully_shard(decoder, mesh=mesh, reshard_after_forward=True)


def whole(tensor: Tensor) -> Tensor:
    """All of a tensor of which processes may hold shares; then all of them have to ask."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def shared_like(tensor: Tensor, other: Tensor) -> Tensor:
    """This process's share of a whole tensor, dealt out as `other` is, on its device."""
    tensor = tensor.to(other.device)
    if isinstance(other, DTensor) and not isinstance(tensor, DTensor):
        return distribute_tensor(tensor, other.device_mesh, other.placements)
    return tensor
