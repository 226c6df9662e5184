"""Every configuration in the repository can be loaded and trained, and is documented."""

from __future__ import annotations

import math
from collections import defaultdict
from pathlib import Path

import pytest
import torch

import training
from tests.support.lra_files import write_lra, write_mnist
from tests.support.parallel_files import number_pairs, write_both
from tests.support.piano_rolls import write_rolls, write_songs
from tests.support.planned import write_corpus
from tests.support.runs import band
from tests.support.series_files import write_waves
from tokenization.remi.multitrack import MultitrackRemiConfig
from training.config import read_yaml
from training.evaluation.sweep.config import read_sweep
from training.experiment import build_experiment
from training.runs import samples
from training.runs.fit import fit

FOLDER = Path(training.__file__).parent / "configs"
OF_SWEEPS = ("sweeps", "claims")
"""Folders with configurations of `relpe-train sweep`; all others are for `relpe-train fit`."""
SWEEPS = sorted(path for path in FOLDER.rglob("*.yaml") if path.parent.name in OF_SWEEPS)
CONFIGS = sorted(path for path in FOLDER.rglob("*.yaml") if path.parent.name not in OF_SWEEPS)
TINY = (
    *("task.model.width=16", "task.model.num_layers=2"),
    *("task.model.num_heads=2", "task.model.hidden=16", "trainer.loggers=[]"),
)
OF_KIND = {read_yaml(path)["task"].get("kind", "music"): path for path in reversed(CONFIGS)}
OF_KIND["music"] = FOLDER / "release" / "sibling.yaml"
"""A configuration of each kind of task."""


def name_of(path):
    return f"{path.parent.name}/{path.stem}"


@pytest.fixture(scope="session")
def lra(tmp_path_factory):
    """Stand-ins for the files of the Long Range Arena, of images and of time series."""
    folder = tmp_path_factory.mktemp("lra")
    write_lra(folder)
    write_mnist(folder)
    write_waves(folder)
    (folder / "m1_yearly_dataset.tsf").write_text(f"@data\nT1:{','.join(map(str, range(1, 99)))}\n")
    return folder


@pytest.fixture(scope="session")
def parallel(tmp_path_factory):
    """Stand-ins for the files of iso-codes and of WMT14."""
    folder = tmp_path_factory.mktemp("parallel")
    for path in (FOLDER / "translation").glob("*.yaml"):
        task = read_yaml(path)["task"]
        for part in (*task["train"], *task.get("validation", ()), *task.get("test", ())):
            names = [part] if isinstance(part, str) else part
            write_both(folder, Path(names[0]).stem, number_pairs(60))
            for name, ending in zip(names, (".en", ".fr"), strict=False):
                if not (folder / name).exists():
                    (folder / name).write_bytes((folder / name).with_suffix(ending).read_bytes())
    return folder


@pytest.fixture(scope="session")
def corpora(lra, parallel, tmp_path_factory):
    """The data of each folder of configurations; those that are missing here are of music."""
    pieces = {"train": (1, 2, 3), "validation": (4,)}
    music = write_corpus(
        tmp_path_factory.mktemp("music") / "data",
        MultitrackRemiConfig().build(),
        {split: [(band(seed), (0, -1, 0)) for seed in seeds] for split, seeds in pieces.items()},
    )
    rolls = write_rolls(tmp_path_factory.mktemp("rolls") / "rolls.npz")
    others = {"piano_rolls": rolls, "tasks": None, "transduction": None, "translation": parallel}
    others["harmonization"] = write_songs(tmp_path_factory.mktemp("songs"))
    return defaultdict(lambda: music, others | dict.fromkeys(CLASSES, lra))


@pytest.fixture(autouse=True)
def _quick_samples(monkeypatch, quick_continuations):
    monkeypatch.setattr(samples, "NEW_BARS", 1)


PACKAGES = {
    "digits": "sklearn",
    "pixels": "sklearn",
    "mnist1d": "mnist1d",
    "translation": "tokenizers",
}
"""Packages that have the data of a task, which the development environment need not have."""
CLASSES = ("lra", "images", "series")
"""Folders of configurations of classifiers."""
GENERATED = ("digits", "pixels", "mnist1d", "listops", "pathfinder")


def fit_two_steps(path, corpora, folder, *overrides):
    data = corpora[path.parent.name]
    of_music = (f"task.data={data}", "task.length=24", "task.validation_windows=2")
    kind = read_yaml(path)["task"].get("kind")
    if package := PACKAGES.get(kind):
        pytest.importorskip(package)
    if path.parent.name in CLASSES:
        of_task = () if kind in GENERATED else (f"task.data={data}",)
        of_task += ("task.validation_examples=4",)
        if kind not in ("forecasting", "pixels"):
            of_task += ("task.test_examples=4",)
        if kind in ("listops", "lra_text", "lra_retrieval"):
            of_task += ("task.max_length=40",)
        if kind == "listops":
            of_task += ("task.shortest=3",)
        if kind == "series":
            of_task += ("task.name=Waves", "task.max_length=12", "task.validation_share=0.5")
            of_task += ("task.model.num_classes=2", "task.model.input.channels=2")
    elif path.parent.name == "transduction":
        of_task = ("task.size=3", "task.validation_examples=4")
    elif kind == "piano_rolls":
        of_task = (f"task.data={data}", "task.name=jsb")
    elif kind == "harmonization":
        of_task = (f"task.data={data}", "task.length=32")
    elif path.parent.name == "translation":
        of_task = (f"task.data={data}", "task.validation_examples=4", "trainer.accumulate=1")
    else:
        of_task = of_music if data else ("task.size=12", "task.smallest=8")
    shrunk = [
        *("task.batch_size=2", *of_task),
        *("trainer.device=cpu", "trainer.precision=32", "trainer.threads=1"),
    ]
    plain = read_yaml(path, [*shrunk, *overrides])
    tokens = build_experiment(plain).task.tokens_per_step
    plain["trainer"]["token_budget"] = 2 * tokens
    experiment = build_experiment(plain)
    result = fit(experiment, folder, show=False)
    assert result.step == 2
    assert result.validation is not None
    classes = getattr(experiment.task.model, "num_classes", None)
    ids = classes or experiment.task.decoder_config(data).vocabulary_size
    if kind in (
        "piano_rolls",
        "harmonization",
    ):  # keys are independent
        assert result.validation < ids * math.log(2) + 1
        return
    # about that of guessing; random logits add half of their variance, and there are few examples
    assert result.validation < math.log(ids) + (0.5 if classes else 0.12)


@pytest.mark.parametrize("path", OF_KIND.values(), ids=[*OF_KIND])
def test_two_steps_of_each_kind_of_task_with_a_small_model(path, corpora, tmp_path):
    fit_two_steps(path, corpora, tmp_path, *TINY, "trainer.samples=0")


@pytest.mark.slow
@pytest.mark.parametrize("path", CONFIGS, ids=name_of)
def test_two_steps_of_every_config_with_its_own_model(path, corpora, tmp_path):
    fit_two_steps(path, corpora, tmp_path)
    wanted = build_experiment(read_yaml(path)).trainer.samples > 0
    assert (tmp_path / "samples" / "step_000002" / "0.mid").exists() == wanted


@pytest.mark.parametrize("folder", sorted({path.parent.name for path in CONFIGS}))
def test_every_config_builds_at_its_own_size_and_is_described(folder, corpora):
    for path in (path for path in CONFIGS if path.parent.name == folder):
        config = build_experiment(read_yaml(path)).task.decoder_config(corpora[folder])
        with torch.device("meta"):
            config.build()
        assert path.read_text().startswith("# ")  # the site lists configs by this line


@pytest.mark.parametrize("path", SWEEPS, ids=name_of)
def test_every_row_of_every_sweep_builds_its_model(path, tmp_path):
    cells = {(cell.config, cell.row): cell for cell in read_sweep(path, tmp_path).cells}
    first = next(iter(cells))
    # every config and every row once
    for cell in (cell for key, cell in cells.items() if {*key} & {*first}):
        config = build_experiment(cell.settings()["fit"]).task.decoder_config(None)
        with torch.device("meta"):
            config.build()
    assert path.read_text().startswith("# ")


WHOLE = ("piano", "windowed", "groove", "delayed", "long", "relpe")
"""Configurations of released models, which are not part of a comparison."""


def test_compared_configurations_have_the_same_budget():
    for folder in FOLDER.iterdir():
        # budgets are those of the papers
        if folder.name in ("transduction", "translation", "piano_rolls", *CLASSES, *OF_SWEEPS):
            continue
        arms = [path for path in folder.glob("*.yaml") if path.stem not in WHOLE]
        budgets = {build_experiment(read_yaml(path)).trainer.token_budget for path in arms}
        assert len(budgets) <= 1, folder
