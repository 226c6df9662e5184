"""Data of classification from files: what is read, and what is refused in one sentence."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from tests.support.lra_files import write_cifar, write_lra, write_mnist
from tests.support.runs import fit_words
from training.cli import main
from training.errors import TrainingError
from training.experiment import build_experiment
from training.tasks.classification.task import ClassificationTask
from training.tasks.lra.listops import IDS

SMALL = {"width": 8, "num_layers": 1, "num_heads": 2, "hidden": 8, "attention": {"kind": "softmax"}}
SMALL |= {"encoding": {"kind": "rope"}}
BYTES = {"input": {"kind": "tokens", "vocabulary_size": 257}, "num_classes": 2}
TOKENS = {"input": {"kind": "tokens", "vocabulary_size": 256}}


def task_of(kind: str, data: object, model: dict[str, Any], **changes: Any) -> Any:
    task = {"kind": kind, "data": str(data), "batch_size": 4, "model": SMALL | model, **changes}
    return build_experiment({"task": task}).task


def test_listops_leaves_parentheses_out_and_keeps_brackets(tmp_path):
    write_lra(tmp_path)
    model = {"input": {"kind": "tokens", "vocabulary_size": 16}}
    examples = task_of("listops", tmp_path, model).split("validation")
    words = ["[SM", "9", "[MIN", "4", "8", "]", "]"]
    assert examples[1].inputs[0].tolist() == [IDS[word] for word in words]
    assert examples[1].label == 3
    cut = task_of("listops", tmp_path, model, max_length=3, shortest=1).split("test")
    assert cut[1].inputs[0].tolist() == [IDS[word] for word in words[:3]]


def test_reviews_are_bytes_and_a_tenth_validates_unless_it_is_compatible(tmp_path):
    write_lra(tmp_path)
    task = task_of("lra_text", tmp_path, BYTES, max_length=8)
    train, validation, test = (task.split(n) for n in ("train", "validation", "test"))
    assert (len(train), len(validation), len(test)) == (44, 4, 48)
    assert train[0].inputs[0].tolist() == [byte + 1 for byte in b"neg 0 \xc3\xa9"]
    assert {train[index].label for index in range(4)} == {0, 1}
    compatible = task_of("lra_text", tmp_path, BYTES, lra_compat=True)
    assert len(compatible.split("train")) == 48
    assert compatible.batch(compatible.split("validation"), [0]).inputs.shape == (1, 1000)


def test_pairs_have_two_towers_and_quotes_are_text(tmp_path):
    write_lra(tmp_path)
    task = task_of("lra_retrieval", tmp_path, BYTES | {"towers": 2})
    examples = task.split("train")
    assert len(examples) == 24
    first, second = (bytes((x - 1).astype(np.uint8)) for x in examples[5].inputs)
    assert (first, second, examples[5].label) == (b"first text 5", b'a "second" one', 1)
    assert task.batch(examples, [0, 1]).inputs.shape[:2] == (2, 2)


def test_cifar_10_in_both_formats_has_rows_of_pixels(tmp_path):
    for binary in (False, True):
        write_cifar(tmp_path / str(binary), binary=binary)
        task = task_of("cifar10", tmp_path / str(binary), MODELS["cifar10"])
        assert [len(task.split(name)) for name in ("train", "validation", "test")] == [90, 10, 20]
        image = task.split("train")[0].inputs[0]
        assert image.shape == (32, 32, 3)
        assert (image.min(), image.max()) == (-1, 1)
        draws = np.random.default_rng(0)
        draws.integers(10, size=20)
        planes = draws.integers(256, size=(20, 3072)).astype(np.uint8)[0].reshape(3, 32, 32)
        np.testing.assert_allclose(image[2, 5], planes[:, 2, 5] / 127.5 - 1, atol=1e-6)
        grey = task_of("lra_image", tmp_path / str(binary), TOKENS).split("train")[0].inputs[0]
        assert grey.shape == (32, 32)
        wanted = planes[:, 2, 5] @ np.array([0.2989, 0.587, 0.114])
        assert abs(int(grey[2, 5]) - wanted) <= 0.51


def test_mnist_is_read_and_permuted(tmp_path):
    for compressed in (False, True):
        folder = tmp_path / str(compressed)
        write_mnist(folder, compressed=compressed)
        plain, permuted = (task_of("mnist", folder, TOKENS, permuted=on) for on in (False, True))
        assert [len(plain.split(name)) for name in ("train", "validation", "test")] == [36, 4, 40]
        before, after = (t.split("train")[1].inputs[0] for t in (plain, permuted))
        assert before.shape == after.shape == (28, 28)
        assert (before != after).any()
        # the same order for all images
        pixels, moved = (
            sorted(map(bytes, task.images("train")[0].reshape(36, -1).T))
            for task in (plain, permuted)
        )
        assert pixels == moved


def test_a_pickle_that_could_run_code_is_refused(tmp_path):
    write_cifar(tmp_path)
    path = tmp_path / "cifar-10-batches-py" / "data_batch_1"
    path.write_bytes(pickle.dumps({b"data": print}))
    with pytest.raises(TrainingError, match=r"it contains builtins.print"):
        task_of("cifar10", tmp_path, MODELS["cifar10"]).split("train")


CASES = {
    "listops": ("lra_release/lra_release/listops-1000/basic_train.tsv", "expected a first line"),
    "lra_retrieval": ("lra_release/lra_release/tsv_data/new_aan_pairs.train.tsv", "line 1 has 1"),
    "cifar10": ("cifar-10-batches-py/data_batch_1", "not a Python file of CIFAR-10"),
    "mnist": ("train-images-idx3-ubyte", "not an idx file"),
}
MODELS = {
    "listops": {"input": {"kind": "tokens", "vocabulary_size": 16}},
    "lra_retrieval": BYTES | {"towers": 2},
    "lra_text": BYTES,
    "cifar10": {"input": {"kind": "values", "channels": 3}},
    "mnist": TOKENS,
}


def test_a_damaged_file_is_one_clear_sentence(tmp_path):
    write_lra(tmp_path)
    write_mnist(tmp_path)
    for kind, (path, message) in CASES.items():
        (tmp_path / path).write_bytes(b"nothing of this kind")
        with pytest.raises(TrainingError, match=message) as caught:
            task_of(kind, tmp_path, MODELS[kind]).split("train")[0]
        assert path in str(caught.value)


def test_missing_data_are_one_clear_sentence_and_exit_code_2(tmp_path, capsys):
    for kind, model in MODELS.items():
        task = {"kind": kind, "data": str(tmp_path), "model": SMALL | model}
        assert main(fit_words(tmp_path, task)) == 2
        line = capsys.readouterr().err.strip().splitlines()[-1]
        assert str(tmp_path) in line
        assert "found no" in line or "not found" in line


GREY = {"input": {"kind": "values", "channels": 1}, "num_classes": 2}


def pathfinder(data: object = None, **changes: Any) -> ClassificationTask:
    task = {"kind": "pathfinder", "batch_size": 4, "model": SMALL | GREY, **changes}
    return build_experiment({"task": task if data is None else task | {"data": str(data)}}).task


def test_generated_paths_are_the_same_each_time_and_differ_between_splits():
    for size in (32, 128):
        first = pathfinder(size=size).split("train")[5].inputs[0]
        assert first.shape == (size, size, 1)
        assert (first == pathfinder(size=size).split("train")[5].inputs[0]).all()
        assert (first != pathfinder(size=size).split("test")[5].inputs[0]).any()
    examples = pathfinder(size=32).split("train")
    assert 8 < sum(examples[index].label for index in range(40)) < 32


def test_two_circles_are_drawn_and_ink_does_not_tell_the_class():
    examples = pathfinder(model=SMALL | {"input": TOKENS["input"], "num_classes": 2}).split("test")
    ink: dict[int, list[int]] = {0: [], 1: []}
    for index in range(40):
        ids, label = examples[index].inputs[0], examples[index].label
        assert ids.shape == (32, 32)
        assert ids.max() == 255
        ink[label].append((ids > 128).sum())
    means = [np.mean(ink[label]) for label in (0, 1)]
    assert abs(means[0] - means[1]) < 0.1 * means[0]


def test_released_paths_are_read(tmp_path):
    from matplotlib.image import imsave

    folder = tmp_path / "pathfinder32" / "curv_contour_length_14"
    (folder / "imgs" / "0").mkdir(parents=True)
    (folder / "metadata").mkdir()
    lines = []
    for number in range(10):
        image = np.full((32, 32), number * 20, np.uint8)
        image[0, 0] = 255
        imsave(folder / "imgs" / "0" / f"sample_{number}.png", image, cmap="gray", vmin=0, vmax=255)
        lines.append(f"imgs/0 sample_{number}.png {number} {number % 2} 1.8 6")
    table = folder / "metadata" / "0.npy"
    table.write_text("\n".join(lines))
    splits = [pathfinder(tmp_path).split(name) for name in ("train", "validation", "test")]
    assert [len(split) for split in splits] == [8, 1, 1]
    seen = set()
    for example in (split[index] for split in splits for index in range(len(split))):
        # the colour map of the test rounds
        value = 20 * round((float(example.inputs[0][5, 5, 0]) + 1) * 127.5 / 20)
        assert value % 40 == 20 * example.label
        seen.add(value)
    assert seen == {20 * number for number in range(10)}
    other = tmp_path / "other" / table.relative_to(tmp_path)
    other.parent.mkdir(parents=True)
    other.write_text("imgs/0 sample_0.png")
    with pytest.raises(TrainingError, match="line 1 has no folder"):
        pathfinder(tmp_path / "other").split("train")
