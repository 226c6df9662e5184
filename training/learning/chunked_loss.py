"""Loss of long examples in bounded memory: each chunk takes the state of the previous one.

In a batch, PAD is 0, and a token t that is read but not predicted is stored as ~t, which is
negative. Only the functions here and in `evaluation/likelihood.py` read tokens of a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint

from relpe.models.checkpoint import AnyModel
from relpe.models.decoder import Decoder, DecoderState
from tokenization.remi.vocabulary import Families
from training.learning.positions import positions_of


def tokens_of(batch: Tensor) -> Tensor:
    """Return the tokens that the model reads, of the same shape."""
    return batch ^ (batch >> 63)


def targets_of(batch: Tensor) -> Tensor:
    """Return the tokens that the model predicts, of the same shape; 0: none."""
    return batch.clamp(min=0)


def num_predicted(batch: Tensor) -> Tensor:
    """Return the number of tokens (b, l + 1) of a batch that are predicted.

    The first token of a row is not predicted.
    """
    return (batch[:, 1:] > 0).sum()


def negative_log_likelihoods(
    decoder: Decoder,
    batch: Tensor,
    state: DecoderState,
    chunk: int | None = None,
    *,
    truncated: bool = False,
    families: Families | None = None,
) -> Iterator[Tensor]:
    """Yield sums of the negative log-likelihood of tokens (b, l + 1), in nats.

    The first token, PAD and tokens that are only read are not counted. The sums add up to the loss
    of the batch; call `backward` on each of them before requesting the next. `families` are those
    of the tokens; only models that read coordinates need them.

    - Without a `chunk`, or with one of at least l tokens, there is one sum.
    - With a smaller `chunk`, that many tokens pass through the model at a time. There is still one
      sum, with the gradient of the whole batch: only the state before each chunk is stored, and the
      rest is recomputed in the backward pass (Chen et al., 2016).
    - With `truncated`, there is one sum per chunk, and no gradient flows from a chunk to the
      previous one (truncated back-propagation through time, Williams & Peng, 1990).
    """
    length = batch.shape[1] - 1
    positions = positions_of(tokens_of(batch[:, :-1]), decoder.num_axes, families)
    step = length if chunk is None else chunk
    starts = range(0, length, step)
    recompute = torch.is_grad_enabled() and not truncated and len(starts) > 1
    recomputed = partial(checkpoint, _one_call, use_reentrant=False, preserve_rng_state=False)
    call: Any = recomputed if recompute else _one_call  # both give the same results
    nats: Tensor | None = None
    for start in starts:
        part = batch[:, start : start + step + 1]
        now, state = call(decoder, part, positions[:, start : start + step], state)
        state = _mapped(state, _copy_view)
        if truncated:
            yield now
            state = _mapped(state, torch.Tensor.detach)
        else:
            nats = now if nats is None else nats + now
    if nats is not None:
        yield nats


def _one_call(
    decoder: Decoder, batch: Tensor, positions: Tensor, state: DecoderState
) -> tuple[Tensor, DecoderState]:
    tokens, targets = tokens_of(batch[:, :-1]), targets_of(batch[:, 1:])
    logits, state = decoder(tokens, positions, state)
    logits = logits.flatten(0, 1).to(torch.promote_types(logits.dtype, torch.float32))
    return cross_entropy(logits, targets.flatten(), ignore_index=0, reduction="sum"), state


def _mapped(state: Any, change: Callable[[Tensor], Tensor]) -> Any:  # noqa: ANN401
    """Apply `change` to every tensor of a state, which consists of nested tuples."""
    if isinstance(state, torch.Tensor):
        return change(state)
    if not isinstance(state, tuple):
        return state
    parts = (_mapped(part, change) for part in state)
    return type(state)(*parts) if hasattr(state, "_fields") else tuple(parts)


def _copy_view(tensor: Tensor) -> Tensor:
    """Copy a view to its own storage, since the view would keep the whole chunk in memory."""
    return tensor.clone() if tensor.untyped_storage().nbytes() > tensor.nbytes else tensor


def compute_again(decoder: AnyModel) -> None:
    """Enable activation checkpointing of the blocks (Chen et al., 2016).

    Only the inputs of blocks are stored; the rest is recomputed in the backward pass. Results and
    parameter names do not change.
    """
    for block in decoder.blocks:
        block.forward = partial(
            checkpoint, block.forward, use_reentrant=False, preserve_rng_state=False
        )
