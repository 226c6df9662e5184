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
from tokenization.analysis.takes import take_seed
from tokenization.constraints.bar_limit import BarLimit
from tokenization.constraints.rule import ConstrainedGrammar
from tokenization.midi import read_midi
from tokenization.remi.multitrack import MultitrackRemi, MultitrackRemiConfig
from tokenization.remi.remi import PianoRemi, PianoRemiConfig
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
    return PianoRemi()


@pytest.fixture
def decoder(experiment):
    return build_experiment(experiment).task.model.build().eval()


pytestmark = pytest.mark.usefixtures("quick_continuations")


def prompt(tokenizer, seed, bars=2):
    return tokenizer.crop(tokenizer.encode(piece(seed, 6)).ids, 0, bars)


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
    assert not np.array_equal(made[0], made[1])


@pytest.mark.parametrize("musical", [False, True])
@pytest.mark.parametrize("kind", [PianoRemiConfig, MultitrackRemiConfig])
def test_version_2_continues_with_plans(decoder, kind, musical):
    tokenizer = kind(version=2).build()
    families = tokenizer.families
    config = replace(decoder.config, vocabulary_size=families.size)
    if musical:  # a layer that reads bar and place
        grid = AlgebraicConfig(structure=GridStructure(num_axes=3))
        layer = LayerConfig(attention=WindowedAttentionConfig(span=64), encoding=grid)
        config = replace(config, layers=(layer,))
    decoder = config.build().eval()
    assert decoder.num_axes == (3 if musical else 1)
    score = piece(1, 6)
    whole = tokenizer.encode(score, analyse(score)).ids
    prompts = [tokenizer.crop(whole, 2, 3), whole]  # the second one has an end
    first, again = (continuations(decoder, tokenizer, prompts, bars=2) for _ in range(2))
    assert families.last in whole
    for ids, same, given in zip(first, again, prompts, strict=True):
        np.testing.assert_array_equal(ids, same)
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
    monkeypatch.setattr(samples, "MAX_ROWS", 2)
    few = continuations(decoder, tokenizer, prompts, bars=2, seeds=(5, 6, 7))
    for one, other in zip(few, together, strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_best_of_several_takes_is_a_continuation_of_a_seed_of_its_own(decoder, tokenizer):
    prompts = [prompt(tokenizer, 1), prompt(tokenizer, 2, 3)]
    done = []
    best = continuations(
        decoder, tokenizer, prompts, bars=3, seeds=(0, 1), takes=3, advance=done.append
    )
    assert len(best) == 4
    assert sum(done) == 4 * 3
    for index, ids in enumerate(best):
        own = [take_seed(index % 2, take) for take in range(3)]
        takes = continuations(decoder, tokenizer, prompts[index // 2 :][:1], bars=3, seeds=own)
        assert any(np.array_equal(ids, take) for take in takes)


def test_no_more_rows_are_generated_at_once_than_the_maximum(decoder, tokenizer, monkeypatch):
    most = 0
    step = ContinuousBatch.step

    def counted(batch):
        nonlocal most
        most = max(most, len(batch.rows))
        return step(batch)

    monkeypatch.setattr(samples, "MAX_ROWS", 2)
    monkeypatch.setattr(ContinuousBatch, "step", counted)
    prompts = [prompt(tokenizer, seed) for seed in (1, 2)]
    assert len(continuations(decoder, tokenizer, prompts, bars=1, seeds=(0, 1, 2))) == 6
    assert most == 2


def test_a_prompt_with_an_end_is_continued(decoder, tokenizer):
    whole = tokenizer.encode(piece(1, 2)).ids
    assert whole[-1] == EOS
    (made,) = continuations(decoder, tokenizer, [whole], bars=1)
    np.testing.assert_array_equal(made[: len(whole)], [*whole[:-1], BAR])


def test_an_endless_bar_is_ended():
    tokenizer = PianoRemi()
    grammar = tokenizer.grammar(end=False).resume([*prompt(tokenizer, 1), BAR])
    rule = ConstrainedGrammar(grammar, BarLimit(1, 3, max_tokens=8))
    full = rule._replace(limit=rule.limit._replace(tokens=8))
    assert rule.allowed.sum() > 1
    assert np.flatnonzero(full.allowed).tolist() == [BAR]
    assert full.advance(BAR).finished
    assert not full.advance(BAR).allowed.any()


def test_bars_of_an_untrained_model_are_ended(decoder, tokenizer):
    given = prompt(tokenizer, 1)
    (made,) = continuations(decoder, tokenizer, [given], bars=3)
    lines = [*np.flatnonzero(made[len(given) :] == BAR), len(made) - len(given)]
    # a note is completed first
    assert max(np.diff(lines)) <= samples.MAX_BAR_TOKENS + 4


def test_new_music_has_the_metre_and_the_instruments_of_the_prompt(experiment):
    tokenizer = MultitrackRemi()
    experiment["task"]["model"] = {
        **experiment["task"]["model"],
        "vocabulary_size": len(tokenizer.vocabulary),
    }
    decoder = build_experiment(experiment).task.model.build().eval()
    beats = range(0, 72, 12)
    tracks = (
        Track.of([(t, 6, 40, 80) for t in beats], 33),
        Track.of([(t, 1, 36, 80) for t in beats], is_drum=True),
    )
    score = Score(12, tracks, (), (TimeSignature(0, 3, 4),))
    ids = tokenizer.encode(score).ids
    (made,) = continuations(decoder, tokenizer, [ids], bars=2)
    whole = in_bars(made, tokenizer)
    assert whole.lines.tolist() == [0, 36, 72, 108, 144]
    assert {(t.is_drum, t.program) for t in whole.score.tracks if len(t)} <= {
        (True, 0),
        (False, 33),
    }


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
    assert (tmp_path / "step.100.png").read_bytes().startswith(b"\x89PNG")


def test_a_picture_is_drawn_of_drums_alone_and_of_silence(tmp_path):
    tokenizer = MultitrackRemi()
    drums = Score(12, (Track.of([(0, 1, 36, 80), (30, 1, 38, 90)], is_drum=True),))
    for name, score in (("drums", drums), ("silence", Score(12, end_ticks=48))):
        write_sample(tokenizer.encode(score).ids, tokenizer, tmp_path / name, 1)
        assert (tmp_path / f"{name}.png").stat().st_size > 1000
