from __future__ import annotations

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest

from tests.support.corpora import archive, stand_ins
from tests.support.paths import ROOT
from tests.support.runs import piece
from tokenization.presets import PRESETS, load_tokenizer
from tokenization.remi.multitrack import MultitrackRemiConfig
from tokenization.remi.remi import Remi
from training.cli import main
from training.data.corpus import Corpus, read_facts
from training.data.mixtures.listing import Listing
from training.data.mixtures.mixture import CorpusConfig, Mixture, StyleRule
from training.data.prepare import prepare_mixture
from training.data.shards import MASKED_TEMPOS, MASKED_VELOCITIES
from training.errors import TrainingError


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    return stand_ins(tmp_path_factory.mktemp("corpora"))


@pytest.fixture(scope="module")
def prepared(corpora, tmp_path_factory):
    """The mixture `all`, prepared from stand-ins."""
    folder = tmp_path_factory.mktemp("prepared") / "all"
    words = ["--mixture", "all", "--from", str(corpora), "--workers", "1"]
    assert main(["prepare", *words, "--output", str(folder)]) == 0
    return folder


def names(folder, split):
    return Corpus.load(folder, split).names


def test_the_mixture_of_the_project_names_licences_and_weights_in_percent(tmp_path):
    mixture = Mixture.load("all", tmp_path)
    assert mixture.tokenizer in PRESETS
    assert math.isclose(sum(corpus.weight or 0 for corpus in mixture.corpora.values()), 100)
    for corpus in mixture.corpora.values():
        assert corpus.attribution
        assert corpus.address
        assert corpus.licence != "unknown"
        assert corpus.style


def test_files_of_a_corpus_are_those_that_the_mixture_chooses(prepared):
    """Not contradictory licences nor songs that are there twice; splits by other names."""
    for name, expected in (
        ("hymns", ["oha"]),
        ("pop909", ["000", "001"]),
        ("groove", ["s.1", "s.2"]),
    ):
        train = [Path(file) for file in names(prepared, "train") if file.startswith(f"{name}/")]
        assert sorted(path.stem for path in train) == expected
    assert list(read_facts(prepared)["splits"]) == ["train", "validation", "test"]


def test_train_only_corpora_lose_pieces_with_the_melody_of_a_held_out_piece(prepared):
    facts = read_facts(prepared)
    assert "giantmidi/giantmidi_sample/midi/x.mid" in names(prepared, "train")
    reason = facts["copies"]["giantmidi/giantmidi_sample/midi/cut.mid"]
    assert "also in chopin/chopin/midi/c.mid" in reason
    assert "this corpus is for training" in reason
    assert [one["splits"]["test"]["files"] for one in facts["corpora"]][:5] == [1, 1, 0, 2, 1]


def test_editions_of_a_held_out_piece_move_to_its_split(prepared):
    facts = read_facts(prepared)
    assert list(facts["moved"]) == ["polish/polish/midi/edition.mid"]
    assert "from train to test: 100% of its melody" in facts["moved"].popitem()[1]
    assert "polish/polish/midi/edition.mid" in names(prepared, "test")
    assert facts["copies"]["polish/polish/midi/again.mid"].startswith("the same tokens as polish")


def test_pieces_know_their_corpus_style_and_what_is_not_predicted(prepared):
    facts = read_facts(prepared)
    corpus = Corpus.load(prepared, "train")
    assert [dict(one) for one in corpus.corpora] == facts["corpora"]
    assert math.isclose(sum(one["weight"] for one in corpus.corpora), 1)
    found = {name: corpus.facts(index) for index, name in enumerate(corpus.names)}
    expected = {
        "pop909/pop909/solo/000.mid": ("pop909", "pop", 0),
        "chopin/chopin/midi/a.mid": ("chopin", "mazurka", 0),
        "giantmidi/giantmidi_sample/midi/x.mid": ("giantmidi", "impressionist", 0),
        "polish/polish/midi/a.mid": ("polish", "piano", MASKED_VELOCITIES | MASKED_TEMPOS),
        "mutopia/mutopia/midi/a.mid": ("mutopia", "baroque", 0),
        "groove/groove/midi/train/s.1.mid": ("groove", "jazz", 0),
        "groovemidi/groovemidi/midi/a.mid": ("groovemidi", "rock", 0),
        "quartets/quartets/midi/a.mid": ("quartets", "string quartet", 0),
    }
    for name, wanted in expected.items():
        piece_facts = found[name]
        style = facts["styles"][piece_facts.style]
        assert (facts["corpora"][piece_facts.corpus]["name"], style, piece_facts.masked) == wanted
    without = Corpus.load(prepared, "test")
    at = without.names.index("groovemidi/groovemidi/midi/c.mid")
    assert without.facts(at).style == -1
    tokenizer = load_tokenizer(prepared)
    assert isinstance(tokenizer, Remi)
    assert isinstance(tokenizer.config, MultitrackRemiConfig)
    assert tokenizer.config.styles == tuple(facts["styles"])


def test_some_corpora_of_a_mixture_are_the_same_pieces_in_the_same_order(prepared):
    whole = Corpus.load(prepared, "train")
    for chosen in (("groove",), ("quartets", "pop909"), ("pop909", "quartets")):
        some = Corpus.load(prepared, "train", only=chosen)
        kept = [
            index
            for index in range(len(whole))
            if whole.corpora[whole.facts(index).corpus]["name"] in chosen
        ]
        assert 0 < len(some) == len(kept) < len(whole)
        assert some.names == [whole.names[index] for index in kept]
        assert some.corpora == whole.corpora
        assert some.lengths.sum() == sum(whole.length(index) for index in kept)
        for index, place in enumerate(kept):
            assert np.array_equal(some.piece(index), whole.piece(place))
            assert np.array_equal(some.piece_bars(index), whole.piece_bars(place))
            assert some.facts(index) == whole.facts(place)
    with pytest.raises(TrainingError, match=r"no corpus 'jazz', expected one of pop909, chopin"):
        Corpus.load(prepared, "train", only=["pop909", "jazz"])


def test_stored_pieces_are_documents_from_nothing_with_plan_and_key(prepared):
    tokenizer = load_tokenizer(prepared)
    assert isinstance(tokenizer, Remi)
    corpus = Corpus.load(prepared, "train")
    for index in range(0, len(corpus), 4):
        ids = corpus.piece(index)
        document = tokenizer.decode_document(ids)
        assert (document.begins, document.ends, document.selection) == (True, True, None)
        assert document.header.style is None
        again = tokenizer.encode(document.score, document.plan).ids
        np.testing.assert_array_equal(again, ids)
    pitched = corpus.names.index("quartets/quartets/midi/a.mid")
    plan = tokenizer.decode_document(corpus.piece(pitched)).plan
    assert plan is not None
    assert plan.key is not None
    assert all(bar.chords for bar in plan.bars)


def test_the_pedal_lengthens_notes(prepared):
    tokenizer = load_tokenizer(prepared)
    corpus = Corpus.load(prepared, "train")
    score = tokenizer.decode(corpus.piece(corpus.names.index("chopin/chopin/midi/a.mid")))
    [track] = score.tracks
    held = track.notes[track.notes[:, 0] < 60]  # of the 96 steps in which the pedal is down
    until = np.append(track.notes[:, 0], 96)
    for onset, duration, pitch, _ in held.tolist():
        struck = track.notes[(track.notes[:, 2] == pitch) & (track.notes[:, 0] > onset), 0]
        assert onset + duration >= min([96, *struck.tolist()]) - 4, until


def test_the_card_credits_the_corpora_and_warns(prepared):
    card = (prepared / "README.md").read_text()
    for corpus in Mixture.load("all", prepared).corpora.values():
        assert corpus.attribution.rstrip(".") in card
    assert "- pop909: splits.json names 1 pieces without a file: lost" in card
    assert "- polish/polish/midi/edition.mid: from train to test" in card
    assert "| polish | 8.0% |" in card
    assert "no licence is known" not in card
    assert (
        "\nChosen files:\n\n- pop909: files `pop909/solo/*.mid`.\n"
        in (prepared / "README.md").read_text()
    )


def test_a_mixture_of_ones_own_extends_one_of_the_project_as_documented(corpora, tmp_path):
    readme = (ROOT / "docs" / "pages" / "how-to" / "corpus.md").read_text("utf-8")
    [example] = re.findall(r"```yaml\n(# mine.yaml.*?)```", readme, re.DOTALL)
    (tmp_path / "mine.yaml").write_text(example)
    some = {f"{n}.mid": piece(200 + n) for n in range(3)}
    table = [("name", "instruments"), ("0", "Piano"), ("1", "Piano"), ("2", "Piano, Drums")]
    archive(corpora / "jazz.zip", some, {"train": ["0"], "validation": ["1"], "test": ["2"]}, table)
    mixture = Mixture.load(str(tmp_path / "mine.yaml"), corpora)
    data = prepare_mixture(mixture, tmp_path / "out", PRESETS["multitrack-2"].build(), workers=1)
    assert data["corpora"][-1]["weight"] == pytest.approx(0.2)
    assert "jazz" in data["styles"]
    assert data["corpora"][-1]["filtered"] == 1
    card = (tmp_path / "out" / "README.md").read_text()
    assert "\n- jazz: `instruments` matches `^Piano$`.\n" in card


def test_an_invalid_mixture_is_refused(tmp_path):
    a = "corpora: {a: {source: a"
    for text, message in (
        ("tokenizer: piano-2", "found no corpora"),
        (f"tokenizer: piano-2\n{a}, wait: 1}}}}", r"corpora.a.wait: unknown"),
        (f"tokenizer: piano-2\n{a}, pieces: {{b: '('}}}}}}", "regular expression"),
        (f"tokenizer: piano-2\n{a}, splits: {{b: valid}}}}}}", "found 'valid', expected one of"),
        (f"tokenizer: piano-2\n{a}, weight: 1}}, b: {{source: b}}}}", "found no weight for b"),
        ("extends: pino", "no such file"),
        (f"{a}}}}}", r"mine\.yaml: found no tokenizer, which is required$"),
        ("tokenizer: piano-2\ncorpora: {a: {weight: 1}}", "corpora.a: found no source, which"),
    ):
        (tmp_path / "mine.yaml").write_text(text)
        with pytest.raises(TrainingError, match=message):
            Mixture.load(str(tmp_path / "mine.yaml"), tmp_path)


def test_options_that_do_not_fit_are_refused(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for words, message in (
        ("--mixture alle", "expected all, or a YAML file"),
        ("--mixture all --corpus x", "give either --corpus or --mixture"),
        ("", "give either --corpus or --mixture"),
        ("--mixture all --include *", "only for --corpus"),
        ("--corpus x --from y", "--from is only for --mixture"),
        ("--mixture all", "has the corpora with --from"),
        ("--mixture all --from nowhere", "found no pop909/pop909.zip and no "),
        ("--mixture all --tokenizer x", "expected piano-2 or multitrack-2"),
    ):
        assert main(["prepare", *words.split(), "--output", str(tmp_path / "out")]) == 2
        assert message in capsys.readouterr().err
        assert not (tmp_path / "out").exists()


def test_a_corpus_without_chosen_pieces_is_refused(tmp_path):
    archive(tmp_path / "a.zip", {"x.mid": piece(0)}, None, [("name", "title"), ("x", "Z")])
    (tmp_path / "m.yaml").write_text(
        "tokenizer: piano\ncorpora: {b: {source: a.zip, pieces: {title: Y}}}"
    )
    mixture = Mixture.load(str(tmp_path / "m.yaml"), tmp_path)
    with pytest.raises(TrainingError, match=r"a\.zip: `pieces` of corpus b leaves out all 1 files"):
        prepare_mixture(mixture, tmp_path / "out", PRESETS["piano-2"].build())
    assert not (tmp_path / "out").exists()


def test_columns_that_a_mixture_needs_must_exist(tmp_path):
    archive(tmp_path / "a.zip", {"x.mid": piece(0)}, None, [("name", "title"), ("y", "Z")])
    for column, said in (("genre", "no column genre, expected one of name, title"), ("title", "x")):
        (tmp_path / "m.yaml").write_text(
            f"tokenizer: piano\ncorpora: {{a: {{source: a.zip, style: {{column: {column}}}}}}}"
        )
        mixture = Mixture.load(str(tmp_path / "m.yaml"), tmp_path)
        with pytest.raises(TrainingError, match=said):
            prepare_mixture(mixture, tmp_path / "out", PRESETS["piano-2"].build())


def listed(tmp_path, table, pieces, style="title"):
    """The listing of an archive with two files of the same name."""
    scores = {"a/x.mid": piece(0), "b/x.mid": piece(1)}
    archive(tmp_path / "c.zip", scores, None, [("name", "title", "kind"), *table])
    config = CorpusConfig(source="c.zip", pieces=pieces, style=(StyleRule(column=style),))
    return Listing.of("c", config, tmp_path, None)


def test_files_of_the_same_name_have_rows_of_their_own(tmp_path):
    found = listed(tmp_path, [("a/x.mid", "rock", "1"), ("b/x", "jazz", "1")], {"kind": "1"})
    assert found.styles == {"c/a/x.mid": "rock", "c/b/x.mid": "jazz"}
    with pytest.raises(TrainingError, match="no row for 2 files, or several that may be meant"):
        listed(tmp_path, [("x", "rock", "1"), ("x", "jazz", "1")], None)


def test_empty_cells_at_the_end_of_a_row_may_be_missing(tmp_path):
    found = listed(tmp_path, [("a/x", "rock"), ("b/x", "jazz", "1")], {"kind": "^$"}, "title")
    assert found.styles == {"c/a/x.mid": "rock"}
    assert found.filtered == 1


def test_the_hash_covers_weights_styles_and_what_is_not_predicted(tmp_path):
    archive(tmp_path / "a.zip", {"x.mid": piece(0), "y.mid": piece(1)})
    archive(tmp_path / "b.zip", {"x.mid": piece(2), "y.mid": piece(3)})
    hashes = set()
    plain = "{source: b.zip, weight: 1, style: pop}"
    for number, other in enumerate(
        (plain, plain, plain.replace("1", "2"), plain.replace("pop", "pip"))
    ):
        text = f"tokenizer: piano\ncorpora: {{a: {{source: a.zip, weight: 1}}, b: {other}}}"
        (tmp_path / "m.yaml").write_text(text)
        mixture = Mixture.load(str(tmp_path / "m.yaml"), tmp_path)
        out = tmp_path / str(number)
        hashes.add(prepare_mixture(mixture, out, PRESETS["piano-2"].build(), workers=1)["hash"])
    assert len(hashes) == 3


def test_splits_that_are_unknown_or_empty_are_reported(tmp_path, capsys):
    archive(tmp_path / "a.zip", {"x.mid": piece(0), "y.mid": piece(1)}, {"train": ["x"], "z": "y"})
    words = ["--corpus", str(tmp_path / "a.zip"), "--output", str(tmp_path / "out")]
    assert main(["prepare", *words, "--workers", "1"]) == 0
    said = capsys.readouterr().err
    assert "warning: a.zip: found a split 'z', expected train, validation or test" in said
    assert "warning: the split 'validation' is empty" in said
    assert "warning: the split 'test' is empty" in said
    assert json.loads((tmp_path / "out" / "data.json").read_text())["corpora"][0]["weight"] == 1


def test_a_validation_of_one_piece_is_reported_and_pieces_to_test_alone_are_prepared(
    tmp_path, capsys
):
    for splits in ({"train": ["x"], "validation": ["y"]}, {"test": ["x", "y"]}):
        archive(tmp_path / "a.zip", {"x.mid": piece(0), "y.mid": piece(1)}, splits)
        out = tmp_path / "-".join(splits)
        words = ["--corpus", str(tmp_path / "a.zip"), "--output", str(out), "--workers", "1"]
        assert main(["prepare", *words]) == 0
        said = capsys.readouterr().err
        assert ("warning: the split 'validation' has one piece" in said) == ("train" in splits)
        held = json.loads((out / "data.json").read_text())["splits"]
        assert {name: len(pieces) for name, pieces in splits.items()} == {
            name: held[name]["files"] for name in splits
        }
