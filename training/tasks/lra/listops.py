"""The task `listops`: nested operations on digits (Nangia and Bowman, 2018; Tay et al., 2021).

Unlike the published code, tokens include the closing bracket, without which an expression cannot be
parsed.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from training.errors import TrainingError, check_range
from training.learning.seeding import generator
from training.tasks.classification.examples import Example, LabelledExamples, in_memory
from training.tasks.classification.task import Split
from training.tasks.generated import split_of
from training.tasks.lra.released import SequenceTask, released

OPERATORS = ("[MAX", "[MIN", "[MED", "[SM")
SYMBOLS = (*OPERATORS, "]", *map(str, range(10)))
IDS = {symbol: number for number, symbol in enumerate(SYMBOLS, start=1)}
"""Token ids; 0 is padding."""
SIZES: dict[Split, int] = {"train": 96_000, "validation": 2_000, "test": 2_000}
_FILES: dict[Split, str] = {"train": "train", "validation": "val", "test": "test"}
_OPERATOR_SHARE, _MOST_DEPTH, _MOST_ARGUMENTS = 0.25, 10, 10


@dataclass(frozen=True, kw_only=True)
class ListOpsTask(SequenceTask):
    """The value of an expression such as [MAX 2 [MIN 3 9 ] [SM 7 8 ] ].

    Without `data`, expressions are generated, 96,000 of them for training. A node is an operator
    with a probability of 0.25, with 2 to 10 arguments, to a depth of 10; otherwise it is a digit.
    """

    num_ids: ClassVar[int] = 1 + len(SYMBOLS)

    kind: Literal["listops"] = "listops"
    data: Path | None = None
    """Folder with `listops-1000`, or that folder itself; None: expressions are generated."""
    shortest: int = 500
    """Smallest number of tokens of a generated expression."""
    max_length: int = 2000
    """Largest number of tokens; those of files are cut to it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("shortest", self.shortest, 1, self.max_length)

    def split(self, name: Split) -> LabelledExamples:
        """Return the examples of a split; see `ClassificationTask`."""
        if self.data is None:
            return generated(name, self.shortest, self.max_length)
        path = released(self.data, "listops-1000", "listops") / f"basic_{_FILES[name]}.tsv"
        return read_listops(path, self.max_length)


def value_of(tokens: list[int]) -> int:
    """Return an expression's value, 0 to 9; MED is the median without fraction, SM the sum mod 10.

    Raises:
        ValueError: it is not an expression.
    """
    stack: list[list[int]] = [[]]
    operators: list[int] = []
    for token in tokens:
        if token <= len(OPERATORS):
            operators.append(token)
            stack.append([])
        elif token == IDS["]"]:
            values, operator = sorted(stack.pop()), operators.pop() if operators else 0
            if not operator or not values:
                raise ValueError("a bracket closes nothing")
            half = len(values) // 2
            median = values[half] if len(values) % 2 else (values[half - 1] + values[half]) // 2
            stack[-1].append((values[-1], values[0], median, sum(values) % 10)[operator - 1])
        else:
            stack[-1].append(token - IDS["0"])
    if operators or len(stack[0]) != 1:
        raise ValueError("brackets that are not closed, or several values")
    return stack[0][0]


def draw_expression(draws: np.random.Generator, most: int) -> list[int] | None:
    """Return the token ids of a random expression; None if it is longer than `most`."""
    tokens: list[int] = []
    left: list[int] = []  # arguments that the open operators still need
    chances, extra = draws.random(64), draws.integers(2**30, size=(64, 2))
    used = 0
    while True:
        if used == len(chances):
            used, chances = 0, draws.random(1024)
            extra = draws.integers(2**30, size=(1024, 2))
        one, (kind, count) = chances[used], extra[used]
        used += 1
        if len(left) < _MOST_DEPTH - 1 and one < _OPERATOR_SHARE:
            tokens.append(1 + int(kind) % len(OPERATORS))
            left.append(2 + int(count) % (_MOST_ARGUMENTS - 1))
            continue
        tokens.append(IDS["0"] + int(kind) % 10)
        while left:
            left[-1] -= 1
            if left[-1]:
                break
            left.pop()
            tokens.append(IDS["]"])
        if not left:
            return tokens if len(tokens) <= most else None
        if len(tokens) + len(left) > most:
            return None


def generated(name: Split, shortest: int, longest: int) -> LabelledExamples:
    """Return random expressions; each depends only on its split and number.

    There are as many as in the released files. No expression is in two splits: a hash decides.
    """
    return LabelledExamples(SIZES[name], partial(_drawn, name, shortest, longest))


def _drawn(name: Split, shortest: int, longest: int, index: int) -> Example:
    """Return an expression and its value."""
    stream: Any = "data" if name == "train" else name
    draws = generator(0, index, stream)
    while True:
        tokens = draw_expression(draws, longest)
        if tokens is not None and len(tokens) >= shortest:
            ids = np.array(tokens, np.uint8)
            if split_of(ids) == name:
                return Example((ids,), value_of(tokens))


@cache
def read_listops(path: Path, longest: int) -> LabelledExamples:
    """Return the expressions of a file with the columns Source and Target.

    Parentheses are left out, since brackets say the same.

    Raises:
        TrainingError: the file is missing or damaged.
    """
    rows: list[Example] = []
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.reader(file, delimiter="\t")
            if next(reader, None) != ["Source", "Target"]:
                raise TrainingError(f"{path}: expected a first line with Source and Target")
            for number, row in enumerate(reader, start=2):
                try:
                    source, target = row
                    words = source.replace("(", " ").replace(")", " ").split()
                    ids = np.array([IDS[word] for word in words[:longest]], np.uint8)
                    rows.append(Example((ids,), range(10)[int(target)]))
                except (ValueError, KeyError, IndexError) as error:
                    raise TrainingError(
                        f"{path}: line {number} is not an expression and a digit ({error})"
                    ) from error
    except FileNotFoundError as error:
        raise TrainingError(
            f"{path}: not found; expected the released files of ListOps, or leave out task.data to "
            "generate expressions"
        ) from error
    return in_memory(rows)
