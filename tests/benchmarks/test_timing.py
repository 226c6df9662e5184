from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from benchmarks.timing import (
    csv_output,
    growth,
    in_new_process,
    medians,
    peak_megabytes,
    run,
    table_output,
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
    csv_output("a", "b")(1, 12345.678)
    machine, _, *rows = capsys.readouterr().out.splitlines()
    assert machine.startswith("# ")
    assert f"numpy {np.__version__}" in machine
    assert rows == ["a,b", "1,12350"]
    table_output("a", "b")("x", 0.00012345)
    assert capsys.readouterr().out == "| a | b |\n|---|---|\n| x | 0.0001234 |\n"


def test_parameters_of_a_benchmark_are_its_options(monkeypatch, capsys):
    calls: list[tuple[object, ...]] = []

    def main(
        files: Sequence[Path] = (),
        /,
        *,
        kinds: Sequence[Literal["a", "b"]] = ("a",),
        bars: tuple[int, int] = (3, 4),
        from_: int,
        fast: bool = False,
    ) -> None:
        calls.append((files, kinds, bars, from_, fast))

    for words in ("x y --from 3 --kinds b a --bars 5 6 --fast", "--from 4"):
        monkeypatch.setattr("sys.argv", ["bench", *words.split()])
        run(main)
    given, defaults = calls
    assert given == ([Path("x"), Path("y")], ["b", "a"], [5, 6], 3, True)
    assert defaults == ((), ("a",), (3, 4), 4, False)
    for words in ("", "--from x", "--from 1 --kinds c", "--from 1 --bars 5"):
        monkeypatch.setattr("sys.argv", ["bench", *words.split()])
        with pytest.raises(SystemExit, match="2"):
            run(main)
        assert capsys.readouterr().err
