"""Grows a trained decoder: a deeper one that initially computes the same function.

Each block of the deeper decoder begins with the weights of a block of the same kind. In blocks that
are new, the projections into the residual stream are zero, so that they change nothing until they
are trained; all their other weights are useful from the start.

Source: Wu et al. (2024), LLaMA Pro, section 3.2, block expansion.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from relpe.models.decoder import Decoder, DecoderConfig
from relpe.models.layers import Layer


def can_grow(config: DecoderConfig, first: DecoderConfig) -> bool:
    """Return whether a decoder of `config` can begin as a deeper copy of a decoder of `first`.

    The configs may differ in the number and pattern of layers, as long as the layers of `first` are
    among those of `config` in the same order, and in the noise seed and the pointer.
    """
    alike = replace(
        first,
        num_layers=config.num_layers,
        layers=config.layers,
        noise_seed=config.noise_seed,
        pointer=config.pointer,
    )
    places = _places(first.layers_in_order, config.layers_in_order)
    return alike == config and places is not None


@torch.no_grad()
def grow(decoder: Decoder, first: Decoder) -> None:
    """Make a decoder compute the same function as a shallower one.

    Raises:
        ValueError: the configs differ in more than `can_grow` allows.
        RuntimeError: encodings with weights for each layer differ in their shapes.
    """
    if not can_grow(decoder.config, first.config):
        raise ValueError("the models differ in more than layers that are added, or in their order")
    before, after = first.config.layers_in_order, decoder.config.layers_in_order
    places = _places(before, after)
    assert places is not None
    weights = first.state_dict()
    grown = {name: value for name, value in weights.items() if not name.startswith("blocks.")}
    for block, layer in enumerate(after):
        alike = [source for source, other in enumerate(before) if other == layer]
        source = min(alike, key=lambda one: abs(places[one] - block))
        for name, value in weights.items():
            rest = name.removeprefix(f"blocks.{source}.")
            if rest != name:
                is_new = places[source] != block and rest.endswith("project_out.weight")
                grown[f"blocks.{block}.{rest}"] = torch.zeros_like(value) if is_new else value
    decoder.load_state_dict(grown)


def _places(before: Sequence[Layer], after: Sequence[Layer]) -> list[int] | None:
    """Return the places of the layers `before` among those `after`, in order and spread evenly.

    Of all choices, the one whose relative depths change least in sum. None: there is none.
    """
    depth = (len(after) - 1) / max(len(before) - 1, 1)
    # the best choice for the layers so far, by the place of the last one
    best: dict[int, tuple[float, list[int]]] = {-1: (0.0, [])}
    for source, layer in enumerate(before):
        extended: dict[int, tuple[float, list[int]]] = {}
        for place, other in enumerate(after):
            earlier = [best[last] for last in best if last < place]
            if other == layer and earlier:
                cost, places = min(earlier)
                extended[place] = cost + abs(place - source * depth), [*places, place]
        best = extended
    return min(best.values())[1] if best else None
