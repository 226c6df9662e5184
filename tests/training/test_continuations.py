from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import training.continuations as samples
from relpe.attention.windowed.attention import WindowedAttentionConfig
from relpe.decoding.batch import ContinuousBatch
from relpe.encodings.algebraic.encoding import AlgebraicConfig
from relpe.encodings.algebraic.structures import GridStructure
from relpe.models.layers import LayerConfig
from tests.support.runs import piece
from tokenization.analysis.plan import analyse
from tokenization.measures.takes import take_seed
from tokenization.midi import read_midi
from tokenization.presets import PRESETS
from tokenization.remi.vocabulary import BAR, EOS
from tokenization.score import Score, TimeSignature, Track
from training.continuations import (
    continuations,
    in_bars,
    write_sample,
)
from training.experiment import build_experiment


@pytest.fixture(scope="module")
def tokenizer():
    return PRESETS["piano-2"].build()


@pytest.fixture
def decoder(experiment, tokenizer):
    model = build_experiment(experiment).task.model
    return replace(model, vocabulary_size=len(tokenizer.vocabulary)).build().eval()


pytestmark = pytest.mark.usefixtures("quick_continuations")


def prompt(tokenizer, seed, bars=2):
    score = piece(seed, 6)
    return tokenizer.crop(tokenizer.encode(score, analyse(score)).ids, 0, bars)


def test_a_continuation_contains_its_prompt_and_the_requested_bars(decoder, tokenizer):
    prompts = [prompt(tokenizer, 1), prompt(tokenizer, 2, 3)]
    done = []
    made = continuations(decoder, tokenizer, prompts, bars=3, seeds=(0, 1), advance=done.append)
    assert len(made) == 4
    assert sum(done) == 4 * 3
    for ids, given in zip(made, (prompts[0], prompts[0], prompts[1], prompts[1]), strict=True):
        np.testing.assert_array_equal(ids[: len(given)], given)
        assert np.count_nonzero(ids == BAR) == np.count_nonzero(given == BAR) + 3
        assert EOS not in ids
        # the generated ids are canonical: the grammar accepts all of them
        tokenizer.grammar().resume(ids)
        # bars of an untrained model are ended, after a note
        lines = [*np.flatnonzero(ids[len(given) :] == BAR), len(ids) - len(given)]
        assert max(np.diff(lines)) <= samples.MAX_BAR_TOKENS + 6
    assert not np.array_equal(made[0], made[1])


def test_new_bars_have_plans_and_a_prompt_with_an_end_is_continued(decoder, tokenizer):
    families = tokenizer.families
    # a layer that reads bar and place
    grid = AlgebraicConfig(structure=GridStructure(num_axes=3))
    layer = LayerConfig(attention=WindowedAttentionConfig(span=64), encoding=grid)
    decoder = replace(decoder.config, layers=(layer,)).build().eval()
    assert decoder.num_axes == 3
    score = piece(1, 6)
    whole = tokenizer.encode(score, analyse(score)).ids
    prompts = [tokenizer.crop(whole, 2, 3), whole]  # the second one has an end
    assert families.last in whole
    for ids, given in zip(continuations(decoder, tokenizer, prompts, bars=2), prompts, strict=True):
        given = given[~np.isin(given, [families.last, EOS])]
        np.testing.assert_array_equal(ids[: len(given)], given)
        new = ids[len(given) :]
        assert np.count_nonzero(new == BAR) == 2
        assert np.count_nonzero((new >= families.return_) & (new < families.chord)) == 2
        assert not (new >= families.later).any()
        tokenizer.grammar().resume(ids)
        assert len(in_bars(ids, tokenizer).lines) == np.count_nonzero(ids == BAR) + 1


def test_continuations_of_different_prompts_are_independent(decoder, tokenizer, monkeypatch):
    prompts = [prompt(tokenizer, seed) for seed in (1, 2, 3)]
    together = continuations(decoder, tokenizer, prompts, bars=2, seeds=(5, 6, 7))
    alone = continuations(decoder, tokenizer, prompts[1:2], bars=2, seeds=(6,))
    np.testing.assert_array_equal(together[4], alone[0])
    most, step = 0, ContinuousBatch.step

    def counted(batch):
        nonlocal most
        most = max(most, len(batch.rows))
        return step(batch)

    monkeypatch.setattr(ContinuousBatch, "step", counted)
    monkeypatch.setattr(samples, "MAX_ROWS", 2)
    few = continuations(decoder, tokenizer, prompts, bars=2, seeds=(5, 6, 7))
    assert most == 2
    for one, other in zip(few, together, strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_best_of_several_takes_is_a_continuation_of_a_seed_of_its_own(decoder, tokenizer):
    prompts, done = [prompt(tokenizer, 1), prompt(tokenizer, 2, 3)], []
    best = continuations(
        decoder, tokenizer, prompts, bars=2, seeds=(0, 1), takes=2, advance=done.append
    )
    assert len(best) == 4
    assert sum(done) == 4 * 2
    own = [take_seed(seed, take) for seed in range(2) for take in range(2)]
    takes = continuations(decoder, tokenizer, prompts, bars=2, seeds=own)
    for index, ids in enumerate(best):  # two takes of each of two seeds of each prompt
        assert any(np.array_equal(ids, take) for take in takes[2 * index : 2 * index + 2])


def test_new_music_has_the_metre_and_the_instruments_of_the_prompt(decoder):
    tokenizer = PRESETS["multitrack-2"].build()
    beats = range(0, 72, 12)
    tracks = (
        Track.of([(t, 6, 40, 80) for t in beats], 33),
        Track.of([(t, 1, 36, 80) for t in beats], is_drum=True),
    )
    score = Score(12, tracks, (), (TimeSignature(0, 3, 4),))
    (made,) = continuations(decoder, tokenizer, [tokenizer.encode(score).ids], bars=2)
    whole = in_bars(made, tokenizer)
    assert whole.lines.tolist() == [0, 36, 72, 108, 144]
    played = {(t.is_drum, t.program) for t in whole.score.tracks if len(t)}
    assert played <= {(True, 0), (False, 33)}


def test_bar_lines_match_the_tokens_and_notes_are_cut_at_the_last_one(tokenizer):
    score = Score(
        12,
        (Track.of([(0, 12, 60, 80), (40, 100, 62, 80)]),),
        (),
        (TimeSignature(0, 4, 4), TimeSignature(48, 3, 4)),
    )
    ids = tokenizer.encode(score).ids
    whole = in_bars(tokenizer.crop(ids, 0, 2), tokenizer)
    assert whole.lines.tolist() == [0, 48, 84]
    assert whole.score.tracks[0].end_ticks == whole.score.end_ticks == 84


def test_a_sample_is_a_midi_file_and_a_picture(tokenizer, tmp_path):
    ids = prompt(tokenizer, 1, 4)
    write_sample(ids, tokenizer, tmp_path / "step.100", 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step.100.mid", "step.100.png"]
    played = read_midi((tmp_path / "step.100.mid").read_bytes())
    assert played.num_notes == in_bars(ids, tokenizer).score.num_notes > 0
    drums = Score(12, (Track.of([(0, 1, 36, 80), (30, 1, 38, 90)], is_drum=True),))
    band = PRESETS["multitrack-2"].build()
    for name, score in (("drums", drums), ("silence", Score(12, end_ticks=48))):
        write_sample(band.encode(score).ids, band, tmp_path / name, 1)
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
