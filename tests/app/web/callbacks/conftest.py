"""A band to continue, and a second model."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tokenization.midi import write_midi
from tokenization.score import Score, Track


@pytest.fixture
def band(tmp_path):
    path = tmp_path / "band.mid"
    drums = Track.of([(48 * bar, 24, 36, 90) for bar in range(4)], is_drum=True)
    flute = Track.of([(48 * bar, 40, 60 + bar, 80) for bar in range(4)], program=73)
    bass = Track.of([(48 * bar, 40, 40 + bar, 80) for bar in range(4)], program=33)
    path.write_bytes(write_midi(Score(12, (flute, bass, drums))))
    return path


@pytest.fixture
def second(calls):
    """Another model that can be chosen."""
    models, fake = calls.studio.models, calls.studio.models.load("fake")
    models.names = ("fake", "second")
    models._loaded["second"] = replace(fake, name="second")
    return "second"
