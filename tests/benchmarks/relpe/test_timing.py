from __future__ import annotations

import itertools
import math

import numpy as np

from benchmarks.relpe.timing import (
    csv_output,
    growth,
    in_new_process,
    medians,
    peak_megabytes,
    times_as_fast,
    turns,
)


def test_ways_take_turns_until_patience_ends():
    order: list[str] = []
    clock = itertools.count()
    ways = {"one": lambda: order.append("one"), "two": lambda: order.append("two")}
    times = turns(ways, 3, lambda: next(clock), calls=2)
    assert order == ["one", "one", "two", "two"] * 3
    assert medians(times) == {"one": 500.0, "two": 500.0}
    assert turns({"one": int}, 3, patience=-1)["one"].__len__() == 1
    assert times_as_fast({"one": [1.0, 2.0, 4.0], "two": [3.0, 2.0, 8.0]}, "one", "two") == 2.0


def test_memory_is_that_of_a_new_process():
    megabytes = growth(lambda: np.ones(2**23))
    assert math.isnan(megabytes) or megabytes >= 0
    assert math.isnan(peak_megabytes(0))
    assert in_new_process(max, 1, 2) == 2


def test_output_names_the_machine_and_its_columns(capsys):
    csv_output("a", "b").writerow([1, 2])
    machine, _, *rows = capsys.readouterr().out.splitlines()
    assert machine.startswith("# ")
    assert f"numpy {np.__version__}" in machine
    assert rows == ["a,b", "1,2"]
