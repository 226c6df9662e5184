"""Tracks and music of a band, and small models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from app.compose.models import MusicModel
from app.compose.piece import Opening
from relpe.decoding.base import StepsMaker
from relpe.models.decoder import DecoderConfig
from tests.support import fakes
from tokenization.remi.remi import Remi
from tokenization.remi.vocabulary import BAR, EOS, MULTITRACK_FAMILIES
from tokenization.score import Score, Tempo, TimeSignature, Track


def a_track(rows: Sequence[Sequence[int]] = (), **fields: Any) -> Track:
    """A track with the given notes."""
    return replace(Track.of(rows), **fields)


def band(metre: tuple[int, int] = (4, 4), bars: int = 3, bpm: float = 100) -> Score:
    """A piano, a bass and drums; 480 ticks a quarter."""
    length = 480 * 4 * metre[0] // metre[1]
    starts = [bar * length for bar in range(bars)]
    tracks = (
        Track.of([(at, 200, 76, 70) for at in starts]),
        Track.of([(at, 200, 28, 90) for at in starts], program=33),
        Track.of([(at + beat, 10, 42, 80) for at in starts for beat in (0, 240)], is_drum=True),
    )
    return Score(480, tracks, (Tempo(0, bpm),), (TimeSignature(0, *metre),), bars * length)


def sampled(opening: Opening, seed: int = 1) -> list[int]:
    """Ids that follow an opening, drawn evenly from what the rule allows, with early ends."""
    rng, rule, ids = np.random.default_rng(seed), opening.rule, []
    while not rule.finished:
        allowed = np.flatnonzero(rule.allowed)
        ends = [token for token in (MULTITRACK_FAMILIES.last, BAR, EOS) if token in allowed]
        token = ends[0] if ends and rng.random() < 0.3 else int(rng.choice(allowed))
        ids.append(token)
        rule = rule.advance(token)
    return ids


def model_of(tokenizer: Remi, **config: Any) -> MusicModel:
    """A small random model whose steps take no time."""
    torch.manual_seed(0)
    size = len(tokenizer.vocabulary)
    shape = DecoderConfig(vocabulary_size=size, width=16, num_layers=2, num_heads=2, hidden=24)
    decoder = replace(shape, **config).build().eval().requires_grad_(requires_grad=False)
    steps = StepsMaker("quick", lambda: fakes.QuickSteps(size))
    return MusicModel("second", decoder, tokenizer, torch.device("cpu"), steps)
