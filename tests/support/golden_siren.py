"""Expected values of networks of sines."""

from __future__ import annotations

import numpy as np
import torch

from relpe.encodings.offset.siren_network import SirenNetwork, SirenNetworkConfig
from tests.support.paths import GOLDEN_FOLDER

GOLDEN = np.load(GOLDEN_FOLDER / "siren.npz", allow_pickle=False)


def golden(name: str) -> torch.Tensor:
    """The stored array of this name."""
    return torch.from_numpy(GOLDEN[name])


def golden_network(name: str) -> SirenNetwork:
    """The network whose weights are stored under `name`."""
    depth = sum(f"{name}/W{layer}" in GOLDEN for layer in range(9))
    width, axes = GOLDEN[f"{name}/W0"].shape
    config = SirenNetworkConfig(
        depth=depth,
        width=width,
        w0=float(GOLDEN[f"{name}/w0"]),
        w0_init=float(GOLDEN[f"{name}/w0_initial"]),
        initialization="original",
    )
    out_features = len(GOLDEN[f"{name}/W{depth - 1}"])
    network = config.build(in_features=axes, out_features=out_features, reference_length=(1.0,))
    weights = {
        f"layers.{layer}.{kind}": golden(f"{name}/{letter}{layer}")
        for layer in range(depth)
        for kind, letter in (("weight", "W"), ("bias", "b"))
    }
    network = network.double()
    network.load_state_dict(weights)
    return network
