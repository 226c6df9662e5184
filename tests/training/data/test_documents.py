"""Documents drawn for training: accepted by the grammar, and parts of the pieces of the corpus."""

from __future__ import annotations

import pickle
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.planned import write_corpus
from tests.support.runs import band, changed, piece, with_model
from tests.support.strategies import MULTITRACK, PIANO
from tokenization.grid import notated_lines
from tokenization.remi.vocabulary import BAR, EOS
from training.data import shards
from training.data.augmentation import Augmentation
from training.data.corpus import Corpus, windows
from training.data.documents import KINDS, Documents, DocumentShares, DrawnDocument
from training.data.shards import MASKED_TEMPOS as TEMPOS
from training.data.shards import MASKED_VELOCITIES as VELOCITIES
from training.errors import TrainingError
from training.evaluation.evaluate import EvaluateOptions, evaluate
from training.experiment import build_experiment
from training.learning.seeding import generator
from training.runs.fit import fit

CORPORA = ({"name": "one", "weight": 0.7}, {"name": "two", "weight": 0.3})
FACTS = [(0, 3, 0), (0, -1, VELOCITIES), (1, -1, TEMPOS), (1, 5, VELOCITIES | TEMPOS), (0, 2, 0)]
ALL = Augmentation(
    program=0.7, drums=0.7, dropped=0.3, velocity=0.7, sounds=0.7, shifted=0.7, looped=0.3, tempo=4
)
BOTH = pytest.mark.parametrize("kind", ["piano", "band"])
REMI = {"piano": PIANO, "band": MULTITRACK}


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    made = {}
    for kind, make in (("piano", piece), ("band", band)):
        pieces = [(make(seed, 8 + 5 * seed), fact) for seed, fact in enumerate(FACTS)]
        splits = {"train": pieces, "validation": pieces[2:4]}
        folder = tmp_path_factory.mktemp(kind) / "data"
        made[kind] = write_corpus(folder, REMI[kind], splits, CORPORA)
    return made


def documents(folders, kind, **changes: Any) -> Documents:
    values: dict[str, Any] = {"length": 600, "batch_size": 3, "seed": 4} | changes
    return Documents(corpus=Corpus.load(folders[kind], "train"), tokenizer=REMI[kind], **values)


def drawn(examples: Documents, count: int) -> list[DrawnDocument]:
    """The first document of each of some examples."""
    room = examples.length + 1
    return [examples.draw_document(generator(7, step, "data"), room) for step in range(count)]


@BOTH
@given(step=st.integers(0, 10**6), length=st.sampled_from([40, 300, 1200]), change=st.booleans())
def test_documents_are_accepted_by_the_grammar_and_decoded(folders, kind, step, length, change):
    remi = REMI[kind]
    changes = {"augmentation": ALL} if change else {}
    examples = documents(folders, kind, length=length, **changes)
    left = length + 1
    for one in examples.draw(generator(1, step, "data")):
        state = remi.grammar()
        for token in one.ids[:left].tolist():
            state = state.advance(token)
        left -= len(one.ids)
        found = remi.decode_document(one.ids)
        np.testing.assert_array_equal(remi.encode(*found).ids, one.ids)
        score, plan, header, selection, begins, ends, _ = one.document
        assert (found.header, found.begins, found.ends) == (header, begins, ends)
        assert (found.plan is None) == (plan is None)
        if selection is None:
            assert (found.plan, found.selection) == (plan, None)
        else:
            assert found.selection.first == selection.first
        if not change and (selection is None or selection.stop is None):
            assert notes_of(found.score) == notes_of(score)


def notes_of(score) -> list[Any]:
    return [track.notes.tolist() for track in score.tracks if len(track)]


@BOTH
def test_documents_are_parts_of_their_pieces(folders, kind):
    examples, remi = documents(folders, kind, transposition=(0, 0)), REMI[kind]
    corpus = examples.corpus
    for one in drawn(examples, 60):
        whole = remi.decode(corpus.piece(one.piece))
        lines = notated_lines(whole, whole.end_ticks)
        score = one.document.score
        bars = len(notated_lines(score, score.end_ticks)) - 1
        stop = one.first_bar + bars
        expected = whole.between(int(lines[one.first_bar]), int(lines[stop]))
        assert notes_of(score) == notes_of(expected)
        assert score.tempos == expected.tempos
        assert one.document.begins == (one.first_bar == 0)
        assert one.document.ends == (stop == len(lines) - 1)
        assert np.count_nonzero(one.ids == BAR) == bars
        if one.kind == "from_nothing":
            assert one.first_bar == 0
        if one.kind.startswith("infilling"):
            assert one.document.selection is not None
            first, end, _ = one.document.selection
            assert end is not None
            assert 1 <= end - first <= 16
            assert len(one.ids) <= 601 or end - first == bars
            assert one.ids[-1] == EOS


def test_shares_are_met_within_the_error_of_sampling(folders):
    # long pieces, so that every kind is possible
    examples = documents(folders, "band", length=150)
    found = drawn(examples, 400)
    kinds = Counter(one.kind for one in found)
    for name in KINDS:
        share = getattr(examples.shares, name)
        assert abs(kinds[name] / 400 - share) < 4 * (share * (1 - share) / 400) ** 0.5, name
    some = [one.document for one in found]
    styles = [one.document.header.style for one in found if FACTS[one.piece][1] >= 0]
    stated = {
        "plan": [bool(d.plan and d.plan.bars) for d in some],
        "key": [bool(d.plan and d.plan.key) for d in some],
        "players": [bool(d.header.players) for d in some],
        "style": [style is not None for style in styles],
    }
    for name, values in stated.items():
        assert abs(np.mean(values) - getattr(examples.shares, name)) < 0.1, name
    corpora = np.mean([FACTS[one.piece][0] for one in found])
    assert abs(corpora - 0.3) < 0.08


def test_a_piano_has_no_given_tracks_and_the_other_kinds_have_their_shares(folders):
    kinds = Counter(one.kind for one in drawn(documents(folders, "piano", length=150), 150))
    assert set(kinds) == {"from_nothing", "continuation", "infilling"}
    assert abs(kinds["continuation"] / 150 - 0.5 / 0.8) < 0.16


def test_given_tracks_are_some_of_those_that_play_and_players_the_others(folders):
    shares = DocumentShares(accompaniment=1, infilling_with_given=1, players=1)
    givens = set()
    for one in drawn(documents(folders, "band", shares=shares), 60):
        score, _, header, selection, *_ = one.document
        if not one.kind.endswith("given") and one.kind != "accompaniment":
            continue
        ranks = MULTITRACK.track_ranks(score.tracks)
        assert selection is not None
        given_ranks = {ranks[index] for index in selection.given}
        assert given_ranks
        assert header.players
        assert not given_ranks & set(header.players)
        if one.kind == "accompaniment":
            assert given_ranks | set(header.players) == set(ranks)
        givens.add(frozenset(given_ranks))
    assert len(givens) == 6  # proper, not empty subsets of three tracks


def test_gaps_are_anywhere_and_short_ones_more_frequent(folders):
    shares = DocumentShares(from_nothing=0, continuation=0, accompaniment=0, infilling=1)
    places = Counter()
    sizes = Counter()
    for one in drawn(documents(folders, "band", shares=shares, length=700), 120):
        assert one.document.selection is not None
        first, stop, _ = one.document.selection
        assert stop is not None
        bars = np.count_nonzero(one.ids == BAR)
        places["begins" if first == 0 else "ends" if stop == bars else "within"] += 1
        sizes[stop - first] += 1
    assert min(places["begins"], places["ends"]) > 5
    assert places["within"] > 60
    assert sizes[1] > 10
    assert max(sizes) > 6


@BOTH
def test_examples_depend_only_on_seed_step_and_row(folders, kind, tmp_path):
    values = {"augmentation": ALL, "length": 200}
    whole = documents(folders, kind, **values)
    batch = whole[5]
    assert batch.shape == (3, 201)
    again = pickle.loads(pickle.dumps(whole))
    again[6]
    np.testing.assert_array_equal(again[5], batch)
    rows = [documents(folders, kind, batch_size=1, first_row=row, **values)[5] for row in range(3)]
    np.testing.assert_array_equal(np.concatenate(rows), batch)
    assert not np.array_equal(whole[6], batch)
    # the same pieces in several shards
    corpus = whole.corpus
    (one,) = corpus.shards
    parts = []
    for index in range(len(one)):
        place = tmp_path / str(index)
        place.mkdir()
        corpus.piece(index).astype("<u2").tofile(place / "tokens.uint16")
        np.save(place / "bars.npy", corpus.piece_bars(index))
        np.save(place / "offsets.npy", np.array([0, corpus.length(index)]))
        np.save(place / "bar_offsets.npy", np.array([0, len(corpus.piece_bars(index))]))
        np.save(place / "pieces.npy", one.pieces[index : index + 1])
        (place / "names.txt").write_text(f"{index}\n")
        parts.append(shards.Shard.load(place))
    many = documents(folders, kind, **values)
    object.__setattr__(many, "corpus", Corpus(tuple(parts), corpus.corpora))
    np.testing.assert_array_equal(many[5], batch)


def test_examples_have_little_padding(folders):
    examples = documents(folders, "band", length=1500, batch_size=40)
    assert (examples[0] == 0).mean() < 0.05


@BOTH
def test_default_velocities_and_tempos_are_read_but_not_predicted(folders, kind):
    names = REMI[kind].vocabulary.names
    examples = documents(folders, kind, batch_size=20, length=400)
    seen = set()
    for row in range(20):
        (first, *_) = examples.draw(generator(4, 2, "data", row))
        example = examples.example(2, row)[: len(first.ids)]
        np.testing.assert_array_equal(np.where(example < 0, ~example, example), first.ids[:401])
        for token, name in zip(example.tolist(), map(names.__getitem__, first.ids), strict=False):
            flag = {"Velocity": VELOCITIES, "DrumVelocity": VELOCITIES, "Tempo": TEMPOS}
            masked = bool(flag.get(name.split("_")[0], 0) & FACTS[first.piece][2])
            assert (token < 0) == masked
        seen.add(FACTS[first.piece][2])
    assert seen == {0, 1, 2, 3}
    cut = windows(Corpus.load(folders[kind], "validation"), REMI[kind], 300)
    hidden = {names[~token].split("_")[0] for token in cut[cut < 0].tolist()}
    assert hidden == {"Velocity", "Tempo"} | ({"DrumVelocity"} if kind == "band" else set())


def test_values_that_are_not_shares_are_refused():
    for wrong, message in (
        ({"plan": 1.5}, "expected 0 to 1"),
        ({"infilling": -1.0}, "expected 0 to 1"),
        ({"from_nothing": 0.0, "continuation": 0.0, "infilling": 0.0}, "expected one above 0"),
    ):
        with pytest.raises(TrainingError, match=message):
            DocumentShares(**wrong)


# ---- runs


@pytest.fixture
def planned(folders, experiment):
    """Plain values of a short experiment with documents."""
    task = {"data": str(folders["band"]), "length": 200, "documents": {"players": 1}}
    model = {"vocabulary_size": 1246}
    return with_model(changed(experiment, task=task, trainer={"token_budget": 2400}), **model)


def test_validation_counts_only_tokens_that_are_predicted(planned, folders, tmp_path):
    fit(build_experiment(planned), tmp_path, show=False)
    options = {"split": "validation", "length": 100, "reach": 300, "map_length": 8, "ngram": 2}
    results = evaluate(EvaluateOptions(model=str(tmp_path), data=folders["band"], **options))
    names = MULTITRACK.vocabulary.names
    corpus = Corpus.load(folders["band"], "validation")
    kinds = [[names[token].split("_")[0] for token in corpus.piece(i)] for i in range(2)]
    every = [kind for piece in kinds for kind in piece[1:]]
    loudness = sum(kind in ("Velocity", "DrumVelocity") for kind in kinds[1])
    kept = len(every) - every.count("Tempo") - loudness
    assert results["tokens"] == kept < len(every)
    families, notes, whole = results["by_family"], results["notes"], results["streaming"]
    assert "Tempo" not in families
    assert sum(family["tokens"] for family in families.values()) == kept
    for name in ("Return", "Chord", "Last"):
        assert families[name]["tokens"] == every.count(name)
    parts = results["by_part"]["streaming"]
    assert sum(parts.values()) == pytest.approx(whole["nats_per_note"])
    plan = sum(
        families[name]["tokens"] * families[name]["streaming"]
        for name in ("Return", "Chord", "Bass", "Key")
        if name in families
    )
    assert parts["plan"] == pytest.approx(plan / notes)
    assert whole["nats_per_token"] * kept / notes == pytest.approx(whole["nats_per_note"])
    assert results["streaming_without_plan"]["nats_per_note"] != parts["music"]
    corpora = results["by_corpus"]
    assert sum(of["pieces"] for of in corpora.values()) == len(corpus)
    for reading in ("windows_100", "streaming", "streaming_without_plan"):
        total = sum(of["notes"] * of[reading] for of in corpora.values())
        assert total / notes == pytest.approx(results[reading]["nats_per_note"])
    table = (tmp_path / "evaluation" / "evaluation.md").read_text()
    assert "| nats per note, whole pieces: of these, the plan |" in table
    assert "| nats per note, whole pieces without their plans |" in table
