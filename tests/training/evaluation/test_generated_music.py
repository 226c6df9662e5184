from __future__ import annotations

import csv
import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import training.evaluation.generated_music as generated
from tokenization.analysis.accidents import KINDS
from tokenization.presets import load_tokenizer
from tokenization.remi.remi import PianoRemi
from tokenization.score import Score, Track
from training.data.corpus import Corpus
from training.errors import TrainingError
from training.evaluation.generated_music import (
    STUCK_BARS,
    GenerationOptions,
    Passage,
    choose_pieces,
    measure_music,
    plain,
)
from training.evaluation.results import is_music
from training.experiment import build_experiment


@given(
    st.lists(st.integers(0, 60), min_size=1, max_size=40),
    st.integers(1, 60),
    st.integers(1, 4),
    st.integers(1, 8),
    st.integers(1, 32),
)
def test_prompts_come_from_the_requested_number_of_different_long_pieces(
    bars, continuations, per_prompt, prompt_bars, new_bars
):
    options = GenerationOptions(
        continuations=continuations, per_prompt=per_prompt, prompt_bars=prompt_bars, bars=new_bars
    )
    table = np.array(bars, np.int64)
    if table.max() < prompt_bars + max(new_bars // 2, 1):
        with pytest.raises(TrainingError, match="lower --prompt-bars or --bars"):
            choose_pieces(table, options)
        return
    pieces, each = choose_pieces(table, options)
    assert len(set(pieces)) == len(pieces)
    assert continuations <= len(pieces) * each < continuations + each
    assert each >= per_prompt
    whole = table.max() >= prompt_bars + new_bars
    wanted = new_bars if whole else max(new_bars // 2, 1)
    assert min(table[list(pieces)]) >= prompt_bars + wanted


def test_prompts_are_spread_over_the_split():
    options = GenerationOptions(continuations=3, prompt_bars=1, bars=1)
    assert choose_pieces(np.full(9, 5), options) == ((0, 3, 6), 1)
    assert choose_pieces(np.full(2, 5), options) == ((0, 1), 2)


def test_options_out_of_range_are_refused():
    wrong = {"continuations": 0, "per_prompt": 0, "prompt_bars": 0, "bars": 0, "takes": 0}
    wrong |= {"seed": -1, "temperature": -0.1, "top_p": 1.5, "presence": 2, "recall": 2}
    for name, value in {**wrong, "memory": 2}.items():
        with pytest.raises(TrainingError, match=f"--{name.replace('_', '-')} is {value}"):
            GenerationOptions(**{name: value})


def passage(notes, bars, prompt_bars=2):
    """A passage of `bars` 4/4 bars that contains `notes`."""
    tokenizer = PianoRemi()
    ids = tokenizer.encode(Score(12, (Track.of(notes),), end_ticks=48 * bars)).ids
    return Passage.of(ids, tokenizer, prompt_bars, bars - prompt_bars)


def test_each_fault_is_found_and_no_other():
    good = [(48 * bar, 12, 60, 80) for bar in range(8)]
    names = ("stuck_notes", "silent_instruments", "accident", *KINDS)
    none = dict.fromkeys(names, 0)
    assert passage(good, 8).faults == none
    held = [*good, (48 * 2, 48 * STUCK_BARS, 70, 80)]
    assert passage(held, 8).faults == none
    longer = 228  # the next duration in the vocabulary after four bars (192)
    stuck = [*good, (48 * 2, longer, 70, 80)]
    assert passage(stuck, 8).faults == {**none, "stuck_notes": 1}
    # a note as long as one of the prompt is not a fault
    like_prompt = [*stuck, (0, longer, 50, 80)]
    assert passage(like_prompt, 8).faults == none
    gap = [note for note in good if note[0] != 48 * 4]
    assert passage(gap, 8).faults == {**none, "accident": 1, "hole": 1}
    ends = [note for note in good if note[0] < 48 * 4] + [(48 * 7, 12, 60, 80)]
    assert passage(ends, 8).faults == {**none, "accident": 1, "hole": 1}


def test_only_the_requested_bars_after_the_prompt_are_measured():
    notes = [(48 * bar, 12, 60, 80) for bar in range(8)]
    tokenizer = PianoRemi()
    ids = tokenizer.encode(Score(12, (Track.of(notes),))).ids
    found = Passage.of(ids, tokenizer, 2, 3)
    assert (found.figures["bars"], found.figures["notes"]) == (3, 3)
    assert found.figures["bars_of_prompt"] == 1
    assert found.score.end_ticks == 5 * 48


def test_nan_and_infinity_become_null():
    assert plain({"a": [1.5, math.nan], "b": (math.inf, "x", 3)}) == {
        "a": [1.5, None],
        "b": [None, "x", 3],
    }


@pytest.mark.usefixtures("quick_continuations")
def test_music_is_compared_with_the_real_music_of_its_pieces(experiment, data, tmp_path):
    decoder = build_experiment(experiment).task.model.build().eval()
    tokenizer, corpus = load_tokenizer(data), Corpus.load(data, "test")
    options = GenerationOptions(
        continuations=3, prompt_bars=2, bars=4, samples_output=tmp_path / "samples"
    )

    def measured(options):
        train = Corpus.load(data, "train")
        return measure_music(
            decoder,
            tokenizer,
            corpus,
            train,
            options,
            names=["a/5.mid"],
            folder=tmp_path,
            show=False,
        )

    found = measured(options)
    # only two pieces are long enough, so each of them is continued twice
    assert (found["protocol"]["prompts"], found["protocol"]["continuations"]) == (2, 4)
    names = [f"{name}.{seed}" for name in ("1", "5") for seed in (0, 1)]
    assert sorted(path.stem for path in (tmp_path / "samples").glob("*.mid")) == names
    assert sorted(path.stem for path in (tmp_path / "samples").glob("*.png")) == names
    with (tmp_path / "continuations_2_4.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert [(row["piece"], row["seed"]) for row in rows] == [
        (name, seed) for name in ("5", "1") for seed in ("0", "1")
    ]
    mean = np.mean([float(row["polyphony"]) for row in rows])
    assert found["figures"]["generated"]["polyphony"]["mean"] == pytest.approx(mean)
    assert found["figures"]["real"]["bars"]["mean"] == 4
    # first the mean of the two continuations of each piece, then the mean over pieces
    polyphony = np.array([float(row["polyphony"]) for row in rows]).reshape(2, 2).mean(1)
    difference = found["differences"]["polyphony"]
    assert difference["prompts"] == 2
    real = found["figures"]["real"]["polyphony"]["mean"]
    assert difference["mean"] == pytest.approx(polyphony.mean() - real)
    assert "copier" not in found["figures"]  # the prompt is too short
    json.dumps(found, allow_nan=False)
    assert found["twins"] == 0
    assert set(found["style"]) == {"exact", "compat"}
    for group in ("generated", "real"):
        similarity = found["style"]["exact"]["onset_duration"][group]["mean"]
        assert len(similarity) == 4
        assert all(0 <= value <= 1 for value in similarity)

    other = measured(replace(options, samples_output=None, seed=7))
    assert other["figures"]["real"] == found["figures"]["real"]
    assert other["figures"]["generated"] != found["figures"]["generated"]
    best = replace(options, samples_output=None, takes=2)
    assert measured(best)["protocol"]["takes"] == 2
    assert best.key == "music_2_4_takes_2" != options.key
    assert is_music(best.key)
    assert (tmp_path / "continuations_2_4_takes_2.csv").is_file()


@pytest.mark.usefixtures("quick_continuations")
def test_a_model_that_generates_real_music_has_the_same_figures(experiment, data, monkeypatch):
    tokenizer, corpus = load_tokenizer(data), Corpus.load(data, "test")

    def real(decoder, tokenizer, prompts, *, bars, seeds, **_):
        whole = [corpus.piece(index) for index in range(len(corpus))]
        return [tokenizer.crop(ids, 0, 2 + bars) for ids in whole for _ in seeds]

    monkeypatch.setattr(generated, "continuations", real)
    decoder = build_experiment(experiment).task.model.build().eval()
    options = GenerationOptions(continuations=2, prompt_bars=2, bars=4)
    train = Corpus.load(data, "train")
    found = measure_music(decoder, tokenizer, corpus, train, options, show=False)
    assert found["figures"]["generated"] == found["figures"]["real"]
    assert {of["mean"] for of in found["differences"].values()} <= {0, None}
    assert found["copies"]["generated"] == found["copies"]["real"]
    assert found["faults"]["generated"] == found["faults"]["real"]
    for name, histogram in found["histograms"].items():
        assert histogram["divergence"] == 0, name
        assert histogram["generated"] == histogram["real"]
    for profiles in found["style"].values():
        for groups in profiles.values():
            assert groups["generated"] == groups["real"]
    options = replace(options, continuations=4)
    assert measure_music(decoder, tokenizer, corpus, train, options, show=False)["twins"] == 4
