"""Chooses how the steps of a decoder are computed: compiled, in CUDA graphs, or row by row."""

from __future__ import annotations

from relpe.command_line import install
from relpe.decoding.base import Backend, Precision, StepsMaker
from relpe.decoding.cuda_graph import TileSteps, why_not_tiled
from relpe.decoding.eager import PlainSteps
from relpe.models.decoder import Decoder
from relpe.models.pointer import pointer


def choose_steps(
    decoder: Decoder,
    backend: Backend = "auto",
    precision: Precision = "int8",
    *,
    threads: int = 1,
) -> StepsMaker:
    """Choose the steps of a decoder: compiled where possible, unless `backend` says otherwise.

    Steps by torch are computed in tiles of rows on a GPU, and row by row on a CPU.

    Raises:
        ValueError: `backend` is `compiled`, but this is not possible; the message says why.
    """
    reason = None
    if backend != "torch":
        reason = why_not_compiled(decoder)
        if reason is None:
            from relpe.decoding.compiled import CompiledDecoder  # imports Numba: takes a second

            compiled = CompiledDecoder(decoder, precision)
            return StepsMaker(compiled.name, lambda: compiled.steps(threads), compiled.warm_up)
        if backend == "compiled":
            raise ValueError(f"steps cannot be compiled: {reason}; use the backend torch or auto")
    on_gpu = decoder.embedding.weight.device.type == "cuda"
    kind = TileSteps if on_gpu and why_not_tiled(decoder) is None else PlainSteps
    maker = StepsMaker(kind(decoder).name, lambda: kind(decoder), fell_back=reason)
    if decoder.config.pointer is None:
        return maker
    return maker._replace(warm_up=pointer.warm_up)


def why_not_compiled(decoder: Decoder) -> str | None:
    """Return why the steps of a decoder cannot be compiled; None if they can."""
    if decoder.embedding.weight.device.type != "cpu":
        return f"the model is on {decoder.embedding.weight.device.type}, expected the CPU"
    try:
        from relpe.decoding.compiled import refusal
    except ImportError as error:
        return f"Numba is not installed ({error}); {install('fast')}"
    except RuntimeError as error:  # Numba found no folder for its cache
        return f"Numba has no cache folder ({error}); set NUMBA_CACHE_DIR to a writable folder"
    return refusal(decoder)
