"""Time series: what is read from files, laws of times and of padding, training and evaluation."""

from __future__ import annotations

import shutil
import zipfile
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.runs import evaluated, fit_words
from tests.support.series_files import write_ts, write_waves
from training.cli import main
from training.errors import TrainingError
from training.experiment import build_experiment
from training.tasks.classification.examples import LabelledBatch
from training.tasks.series.ts_file import read_split

MODEL: dict[str, Any] = {
    "input": {"kind": "values", "channels": 2},
    **{"num_classes": 2, "width": 16, "num_layers": 2, "num_heads": 2, "hidden": 16},
    **{"attention": {"kind": "softmax"}, "encoding": {"kind": "rope"}},
}
ROPE_OF_ONE = MODEL | {"input": {"kind": "values", "channels": 1}}


def task_of(data: object, model: dict[str, Any] = MODEL, **changes: Any) -> Any:
    return build_experiment({"task": plain_of(data, model=model, **changes)}).task


def inputs_of(task: Any, split: str = "train") -> list[np.ndarray]:
    examples = task.split(split)
    return [examples[index].inputs[0] for index in range(len(examples))]


def positions_of(task: Any, split: str = "train") -> list[list[float] | None]:
    examples = task.split(split)
    found = [examples[index].positions for index in range(len(examples))]
    return [None if one is None else one.tolist() for one in found]


def write_both(folder, rows, **options):
    for part in ("TRAIN", "TEST"):
        write_ts(folder / f"Waves_{part}.ts", rows, **options)


def test_a_folder_a_folder_of_sets_and_a_zip_have_the_same_series(tmp_path):
    write_waves(tmp_path / "a" / "Waves")
    with zipfile.ZipFile(tmp_path / "some.whl", "w") as archive:
        for path in sorted((tmp_path / "a" / "Waves").iterdir()):
            archive.write(path, f"package/data/Waves/{path.name}")
    places = (tmp_path / "a" / "Waves", tmp_path / "a", tmp_path / "some.whl")
    read = [read_split(place, "Waves", "TRAIN") for place in places]
    for other in read[1:]:
        for one, same in zip(read[0].series, other.series, strict=True):
            assert (one.values == same.values).all()
    assert read[0].classes == ("slow", "fast")
    assert [len(one.times) for one in read[0].series] == [6, 7, 8, 9, 10, 11, 12, 6, 7, 8, 9, 10]
    assert [one.label for one in read[0].series] == [0, 1] * 6


def test_values_missing_at_all_channels_are_left_out_and_others_are_the_mean(tmp_path):
    write_both(tmp_path, ["1,?,NaN,4:2,?,5,6:Slow", "1,2,3,4:2,2,5,6:Fast"])
    examples = task_of(tmp_path, mark_missing=True, model=MODEL | {"input": channels(4)})
    first, second = inputs_of(examples)
    values = np.array([[1, 2], [4, 6], [1, 2], [2, 2], [3, 5], [4, 6]])
    several = np.array([1, 4, 1, 2, 3, 4])
    np.testing.assert_allclose(first[0, 0], (1 - several.mean()) / several.std(), rtol=1e-6)
    assert first.shape == (3, 4)
    assert first[:, 1].tolist() == [0, 1, 0]
    assert first[1, 0] == 0
    assert first[:, 3].tolist() == second[:, 1].tolist()[:3] == [0, 0, 0]
    assert positions_of(examples) == [[0, 2, 3], None]
    assert positions_of(task_of(tmp_path, times="index")) == [None, None]
    np.testing.assert_allclose(second[:, 0] * several.std() + several.mean(), values[2:, 0])


def channels(count: int) -> dict[str, Any]:
    return {"kind": "values", "channels": count}


def test_channels_with_other_times_share_a_row_where_times_are_equal(tmp_path):
    rows = ["(0,1),(1.5,2),(4,3):(0,5),(4,7),(6,9):Slow", "(7,1),(8,2):(7,3),(8,4):Fast"]
    write_both(tmp_path, rows, timed=True)
    first, second = read_split(tmp_path, "Waves", "TRAIN").series
    assert first.times.tolist() == [0, 1.5, 4, 6]
    np.testing.assert_equal(first.values, [[1, 5], [2, np.nan], [3, 7], [np.nan, 9]])
    assert second.times.tolist() == [7, 8]


def test_dates_are_seconds_and_neither_their_start_nor_their_unit_matters(tmp_path):
    def rows(start: int, unit: int) -> list[str]:
        found = []
        for label, minutes in (("Slow", (0, 1, 2, 5)), ("Fast", (3, 4, 9))):
            seconds = [start + unit * minute for minute in minutes]
            dates = [np.datetime64(second, "s").item().isoformat(" ") for second in seconds]
            found.append(",".join(f"({date},{place})" for place, date in enumerate(dates)))
            found[-1] += f":{label}"
        return found

    for name, start, unit in (("a", 0, 60), ("b", 10**9, 60), ("c", 10**9, 3600)):
        (tmp_path / name).mkdir()
        write_both(tmp_path / name, rows(start, unit), timed=True)
        task = task_of(tmp_path / name, ROPE_OF_ONE)
        assert positions_of(task) == [[0, 1, 2, 5], [0, 1, 6]]
    assert positions_of(task_of(tmp_path / "c", ROPE_OF_ONE, time_step=7200.0))[0] == [
        0,
        0.5,
        1,
        2.5,
    ]


def test_what_is_dropped_leaves_the_times_of_what_is_kept(tmp_path):
    write_waves(tmp_path, count=40)
    whole, half = (inputs_of(task_of(tmp_path, dropped=share)) for share in (0.0, 0.5))
    positions = positions_of(task_of(tmp_path, dropped=0.5))
    kept = 0
    for one, other, at in zip(whole, half, positions, strict=True):
        at = range(len(other)) if at is None else [int(x) for x in at]
        assert (one[at] == other).all()
        kept += len(other)
    assert abs(kept / sum(map(len, whole)) - 0.5) < 0.1
    again = inputs_of(task_of(tmp_path, dropped=0.5))
    assert all((one == other).all() for one, other in zip(half, again, strict=True))


@pytest.mark.parametrize("dropped", [0.0, 0.6])
def test_padding_has_no_effect_and_a_shift_of_all_times_neither(tmp_path, dropped):
    write_waves(tmp_path)
    task = task_of(tmp_path, dropped=dropped)
    torch.manual_seed(0)
    model = task.model.build().eval().double()
    examples = task.split("train")
    batch, *alone = (
        replace(one, inputs=one.inputs.double())
        for one in (task.batch(examples, rows) for rows in (range(6), *([n] for n in range(6))))
    )
    assert batch.mask is not None
    if dropped:
        assert batch.positions is not None
        alone = [replace(one, positions=shifted(one)) for one in alone]
    each = torch.cat([one.logits(model) for one in alone])
    torch.testing.assert_close(batch.logits(model), each)
    torch.testing.assert_close(torch.cat([one.logits(model) for one in batch.chunk(3)]), each)


def shifted(batch: LabelledBatch) -> torch.Tensor | None:
    return None if batch.positions is None else batch.positions + 1000.5


def test_some_of_each_class_validate_and_none_of_them_train(tmp_path):
    write_waves(tmp_path, count=40)
    task = task_of(tmp_path, validation_share=0.2)
    train, validation = (task.split(name) for name in ("train", "validation"))
    assert [len(train), len(validation)] == [32, 8]
    assert sum(validation[index].label for index in range(8)) == 4
    rows = [{x.tobytes() for x in inputs_of(task, name)} for name in ("train", "validation")]
    assert not rows[0] & rows[1]
    assert len(task_of(tmp_path).split("validation")) == 0


def plain_of(folder, **changes: Any) -> dict[str, Any]:
    task = {"kind": "series", "data": str(folder), "name": "Waves", "max_length": 12}
    return task | {"batch_size": 4, "model": MODEL} | changes


def test_a_run_is_trained_and_evaluated_with_and_without_validation(tmp_path, capsys):
    write_waves(tmp_path)
    for share in (0.0, 0.25):
        evaluated(tmp_path, plain_of(tmp_path, dropped=0.3, validation_share=share))
        shown = capsys.readouterr().out
        assert f"series (Waves in {tmp_path}), test" in shown
        assert "of 12 examples right" in shown
        assert ("validation" in shown) == (share > 0)
        shutil.rmtree(tmp_path / "run")


CONVOLUTIONAL = {"attention": {"kind": "linear"}, "encoding": {"kind": "conv_spe"}}


def test_a_damaged_file_is_one_clear_sentence(tmp_path):
    classes = "@classLabel true Slow\n@data\n"
    for text, message in (
        ("nothing of this kind\n", "has no line @data"),
        (classes, "found no series"),
        ("@targetLabel true\n@data\n1,2:5\n", "has no classes"),
        (classes + "1,2:Quick\n", "line 3: found the class 'quick'"),
        (classes + "1,b:Slow\n", "line 3: could not convert string"),
        (classes + "1,inf:Slow\n", "line 3: found the value inf"),
        (classes + "(1,2),(1,3):Slow\n", "times of a channel do not increase"),
        (classes + "(noon,2):Slow\n", "line 3: found the time 'noon'"),
        (classes + "(1,2),(3:Slow\n", "line 3: expected pairs"),
        (classes + "1:Slow\n1:2:Slow\n", "found series of 1 to 2 channels"),
    ):
        (tmp_path / "Waves_TRAIN.ts").write_text(text)
        with pytest.raises(TrainingError, match=rf"Waves_TRAIN\.ts.*{message}"):
            read_split(tmp_path, "Waves", "TRAIN")


def test_settings_that_do_not_fit_are_one_clear_sentence(tmp_path, capsys):
    write_waves(tmp_path)
    tokens = MODEL | {"input": {"kind": "tokens", "vocabulary_size": 9}}
    alibi = MODEL | {"encoding": {"kind": "alibi"}}
    for changes, message in (
        ({"max_length": 8}, "values at 9 times, expected 1 to max_length, 8"),
        ({"model": MODEL | {"num_classes": 3}}, "num_classes is 3, but the task has 2 classes"),
        ({"model": ROPE_OF_ONE}, "channels is 1, but the series of Waves have 2"),
        ({"model": tokens}, "input.kind is tokens"),
        ({"dropped": 0.5, "model": alibi}, "it scores places"),
        ({"time_step": 0.7, "model": MODEL | CONVOLUTIONAL}, "conv_spe cannot read the times"),
        ({"name": "Other"}, "found no Other_TRAIN.ts"),
        ({"data": "nowhere"}, "nowhere: not found"),
        ({"validation_share": 0.7}, "validation_share is 0.7"),
    ):
        assert main(fit_words(tmp_path, plain_of(tmp_path, **changes))) == 2
        assert message in capsys.readouterr().err
        assert not (tmp_path / "run").exists()


def test_a_test_file_that_does_not_fit_is_refused(tmp_path):
    write_waves(tmp_path)
    (tmp_path / "Waves_TEST.ts").write_text("@classLabel true Slow Quick\n@data\n1:2:Quick\n")
    with pytest.raises(TrainingError, match=r"series 1 is of class quick and has 2 channels"):
        task_of(tmp_path).split("test")
