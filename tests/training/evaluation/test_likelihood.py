from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from relpe.attention.windowed.attention import WindowedAttentionConfig
from relpe.encodings.algebraic.encoding import AlgebraicConfig
from relpe.encodings.algebraic.structures import GridStructure
from tokenization.remi.vocabulary import PIANO_FAMILIES
from training.evaluation.likelihood import streaming_nats, window_nats
from training.experiment import build_experiment


@pytest.fixture
def decoder(experiment):
    return build_experiment(experiment).task.model.build().eval()


@pytest.fixture
def pieces():
    draw = np.random.default_rng(0)
    return [draw.integers(4, 512, length) for length in (2, 70, 33, 90, 5)]


def test_neither_chunks_nor_batches_change_the_result(decoder, pieces):
    whole = streaming_nats(decoder, pieces, 1000, 1)
    assert [len(row) for row in whole] == [len(piece) - 1 for piece in pieces]
    for batch_size in (2, 8):
        parts = streaming_nats(decoder, pieces, 16, batch_size)
        cut = window_nats(decoder, pieces, 1000, batch_size)
        for index, row in enumerate(whole):
            np.testing.assert_allclose(parts[index], row, rtol=1e-3, atol=1e-3)
            np.testing.assert_allclose(cut[index], row, rtol=1e-3, atol=1e-3)


def test_coordinates_are_counted_in_the_whole_piece_or_the_window(decoder, pieces):
    grid = AlgebraicConfig(structure=GridStructure(num_axes=3))
    attention = WindowedAttentionConfig(span=64)
    decoder = replace(decoder.config, attention=attention, encoding=grid).build().eval()
    read = partial(streaming_nats, decoder, pieces, families=PIANO_FAMILIES)
    whole, parts = read(1000, 1), read(16, 3)
    for index, row in enumerate(whole):
        np.testing.assert_allclose(parts[index], row, rtol=1e-3, atol=1e-3)
    cut = window_nats(decoder, pieces, 16, 3, families=PIANO_FAMILIES)
    alone = window_nats(decoder, [pieces[3][32:]], 16, 4, families=PIANO_FAMILIES)
    np.testing.assert_allclose(cut[3][32:], alone[0], rtol=1e-3, atol=1e-3)
    with pytest.raises(ValueError, match="reads 3 axes"):
        window_nats(decoder, pieces, 16, 3)


def test_windows_contain_every_token_once_and_are_independent(decoder, pieces):
    nats = window_nats(decoder, pieces, 16, 3)
    assert [len(row) for row in nats] == [len(piece) - 1 for piece in pieces]
    assert all((row > 0).all() for row in nats)
    alone = window_nats(decoder, [pieces[3][32:]], 16, 4)
    np.testing.assert_allclose(nats[3][32:], alone[0], rtol=1e-3, atol=1e-3)


def test_the_noise_depends_on_the_seed(decoder, pieces):
    assert decoder.config.noise_seed == 0
    for read in (window_nats, streaming_nats):
        own, zero, other = (read(decoder, pieces, 16, 3, seed) for seed in (None, 0, 1))
        np.testing.assert_array_equal(own[3], zero[3])
        assert not np.array_equal(own[3], other[3])


def test_progress_counts_every_token_once(decoder, pieces):
    for read in (window_nats, streaming_nats):
        counts = []
        read(decoder, pieces, 16, 3, None, counts.append)
        assert sum(counts) == sum(len(piece) - 1 for piece in pieces)
