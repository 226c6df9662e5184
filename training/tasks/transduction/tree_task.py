"""The task `tree_transduction`: functions of random trees.

Source: Kogkalidis, Bernardy and Garg (2024), section 4.2. Unlike in their code, the ids of the
operations on subtrees are no labels of nodes, and no source is in two splits.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from relpe.encodings.absolute import TreeSQConfig
from relpe.encodings.algebraic.encoding import AlgebraicConfig
from relpe.encodings.algebraic.structures import TreeStructure
from training.errors import TrainingError, check_range
from training.tasks.transduction.pair_task import START
from training.tasks.transduction.pairs import Pair
from training.tasks.transduction.task import TransductionTask
from training.tasks.transduction.trees import (
    OPERATIONS,
    Order,
    Tree,
    TreeTarget,
    apply_operation,
    in_order,
    label_tree,
    random_shape,
    reduce_sums,
    rotate,
)

Function = Literal["copy", "rotate", "c3", "ops"]


@dataclass(frozen=True, kw_only=True)
class TreeTask(TransductionTask):
    """A random binary tree, and a function of it.

    The size is the depth. Ids are 0 (start), then labels of leaves, then those of inner nodes.
    Sources are read level by level, targets are written in an `order`. Positions have two axes,
    the index and the heap id of the node, which is 0 for the start symbol.

    - `copy`, `rotate`: the tree itself; the tree rotated to the right (`trees.rotate`).
    - `c3`: one step of adding in the cyclic group of three elements (`trees.reduce_sums`).
    - `ops`: a node whose label is an operation, with a leaf that points to a subtree and a tree;
      the target is the result (`trees.OPERATIONS`). All labels of the tree are different.
    """

    kind: Literal["tree_transduction"] = "tree_transduction"
    function: Function = "copy"
    """What the target is."""
    order: Order = "breadth"
    """Order in which the nodes of the target are written."""
    num_labels: int | None = None
    """Number of labels, half of them of leaves; None: 20, 4 with c3 (three of leaves), 127 with
    ops (the last four are the operations)."""
    size: int = 7
    deviation: float = 1.0
    test_sizes: tuple[int, ...] = (7, 8, 10, 12)

    def __post_init__(self) -> None:
        check_range("num_labels", self.num_labels, 8 if self.function == "ops" else 4)
        if self.function == "c3" and self.num_labels not in (None, 4):
            raise TrainingError(f"num_labels is {self.num_labels}, but c3 has 4; leave it out")
        super().__post_init__()
        encoding = self.model.encoding
        of_tree = isinstance(encoding, TreeSQConfig) or (
            isinstance(encoding, AlgebraicConfig) and isinstance(encoding.structure, TreeStructure)
        )
        if of_tree and self.model.axes != (1,):
            raise TrainingError(
                "model.encoding reads nodes of a tree, which are on the second axis of positions; "
                "set task.model.axes=[1]"
            )

    @property
    def labels(self) -> int:
        """Number of labels."""
        return self.num_labels or {"c3": 4, "ops": 127}.get(self.function, 20)

    @property
    def first_operator(self) -> int:
        """The first label of inner nodes."""
        return 4 if self.function == "c3" else (self.labels + 1) // 2 + 1

    @property
    def first_operation(self) -> int:
        """The label of the first operation; with `ops`, labels of the tree are below it."""
        return self.labels - len(OPERATIONS) + 1

    @property
    def axes(self) -> int:
        """Index and heap id."""
        return 2

    @property
    def num_tokens(self) -> int:
        """Labels and start; with `ops`, the operations are the last labels."""
        return self.labels + 1

    @property
    def target_tokens(self) -> int:
        """Mean number of nodes of targets, over the first examples."""
        pairs = [self.example("train", index) for index in range(64)]
        return sum(len(pair.target) - 1 for pair in pairs) // len(pairs)

    @property
    def name(self) -> str:
        """The function and the order."""
        return f"tree {self.function}, {self.order} first"

    def draw(self, draws: np.random.Generator, size: int) -> Pair | None:
        """Draw a tree and its image; None if there are too few labels for this tree."""
        drawn = self.trees(draws, size)
        if drawn is None:
            return None
        source, target = drawn
        written = [(START, 0), *in_order(target, self.order)]
        return Pair(np.array(in_order(source, "breadth")), np.array(written))

    def trees(self, draws: np.random.Generator, size: int) -> tuple[Tree, Tree] | None:
        """Draw a tree of a depth and its image; None if there are too few labels for this tree."""
        if self.function == "ops":
            return self._operation(draws, random_shape(draws, size - 1))
        last = self.labels
        leaves = _uniform(draws, 1, self.first_operator)
        source = label_tree(
            random_shape(draws, size), leaves, _uniform(draws, self.first_operator, last + 1)
        )
        images = {"copy": lambda tree: tree, "rotate": rotate, "c3": reduce_sums}
        return source, images[self.function](source)

    def target_of(self, pair: Pair) -> TreeTarget:
        """Return a tree until all of its nodes are written.

        A pointer to an inner node is the label of a leaf if the subtree is to be replaced by it.
        """
        operation, pointer = pair.source[:2, 0].tolist() if len(pair.source) > 1 else (0, 0)
        truncates = self.first_operation + OPERATIONS.index("truncate")
        leaf = pointer if self.function == "ops" and operation == truncates else None
        return TreeTarget(self.first_operator, self.order, leaf)

    def _operation(self, draws: np.random.Generator, shape: Tree) -> tuple[Tree, Tree] | None:
        """Draw an operation on a subtree of a tree with different labels; return its result too."""
        inner = sum(bool(node.children) for node in shape.nodes())
        first, last = self.first_operator, self.first_operation
        if inner + 1 >= first or inner > last - first:
            return None
        leaves = iter((1 + draws.permutation(first - 1)).tolist())
        operators = iter((first + draws.permutation(last - first)).tolist())
        tree = label_tree(shape, leaves, operators)
        nodes = list(tree.nodes())
        label = nodes[int(draws.integers(len(nodes)))].label
        number = int(draws.integers(len(OPERATIONS)))
        source = Tree(self.first_operation + number, (Tree(label), tree))
        return source, apply_operation(OPERATIONS[number], label, tree)


def _uniform(draws: np.random.Generator, first: int, stop: int) -> Iterator[int]:
    """Return the labels from `first` to below `stop`, all equally likely."""
    return (int(draws.integers(first, stop)) for _ in itertools.count())
