"""Functions of trees equal those of the original code; laws of random trees and of their order."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.support.golden_algebraic import ARRAYS
from training.learning.seeding import generator
from training.tasks.transduction.trees import (
    LAST_PARENT,
    OPERATIONS,
    Tree,
    TreeTarget,
    apply_operation,
    in_order,
    label_tree,
    random_shape,
    reduce_sums,
    rotate,
)

START = (0, 0)


def parsed(text: str) -> Tree:
    """A tree from `leaf` or `(operator left right)`."""
    words = iter(text.replace("(", " ( ").replace(")", " ) ").split())

    def one(word: str) -> Tree:
        if word != "(":
            return Tree(int(word))
        label, pair = int(next(words)), (one(next(words)), one(next(words)))
        assert next(words) == ")"
        return Tree(label, pair)

    return one(next(words))


def random_tree(seed: int, depth: int) -> Tree:
    """A tree with labels 1 to 10 of leaves and 11 to 20 of inner nodes."""
    draws = generator(seed, depth, "data")
    leaves = (int(draws.integers(1, 11)) for _ in itertools.count())
    operators = (int(draws.integers(11, 21)) for _ in itertools.count())
    return label_tree(random_shape(draws, depth), leaves, operators)


def pairs(name: str) -> list[tuple[Tree, Tree]]:
    stored = (ARRAYS[f"tasks/{name}_{side}"].tolist() for side in ("in", "out"))
    return [(parsed(before), parsed(after)) for before, after in zip(*stored, strict=True)]


def test_rotations_and_reductions_are_those_of_the_original_code() -> None:
    assert all(rotate(before) == after for before, after in pairs("rotate"))
    assert all(reduce_sums(before) == after for before, after in pairs("c3"))


def test_operations_are_those_of_the_original_code() -> None:
    found = set()
    for before, after in pairs("apply"):
        pointer, tree = before.children
        number = before.label - 124
        # the original also uses 124 as the label of a node
        if sum(node.label == pointer.label for node in tree.nodes()) == 1:
            assert apply_operation(OPERATIONS[number], pointer.label, tree) == after
            found.add(number)
    assert found == {0, 1, 2, 3}


@pytest.mark.parametrize("order", ["breadth", "depth"])
def test_the_order_of_nodes_is_that_of_the_original_code(order) -> None:
    tree = parsed(str(ARRAYS["tasks/linear_tree"]))
    labels, heaps = zip(START, *in_order(tree, order), strict=True)
    assert labels == tuple(ARRAYS[f"tasks/linear_{order}_nodes"])
    assert heaps == tuple(ARRAYS[f"tasks/linear_{order}_heap"])
    mask = ARRAYS[f"tasks/linear_{order}_mask"]
    assert (mask == np.tri(len(labels), dtype=bool)).all()  # causal in both orders


@pytest.mark.parametrize("order", ["breadth", "depth"])
def test_labels_alone_determine_the_nodes_and_the_end(order) -> None:
    for seed, depth in enumerate((0, 1, 2, 4, 9)):
        written = [START, *in_order(random_tree(seed, depth), order)]
        target = TreeTarget(first_operator=11, order=order)
        for label, heap in written:
            assert not target.has_ended
            axes, target = target.read(label)
            assert axes == (heap,)
        assert target.has_ended


def test_a_target_that_descends_for_ever_ends() -> None:
    _, target = TreeTarget(first_operator=11, order="depth").read(0)
    nodes = []
    while not target.has_ended:
        (node,), target = target.read(12)
        nodes.append(node)
    assert nodes == [2**depth for depth in range(len(nodes))]
    assert LAST_PARENT < nodes[-1] < 2**63


def test_random_trees_have_exactly_their_depth_and_two_children_at_inner_nodes() -> None:
    for depth in (0, 1, 2, 7):
        trees = [random_tree(seed, depth) for seed in range(20)]
        assert {tree.depth for tree in trees} == {depth}
        nodes = [node for tree in trees for node in tree.nodes()]
        assert {len(node.children) for node in nodes} == ({0, 2} if depth else {0})
        assert all((node.label > 10) == bool(node.children) for node in nodes)


def test_random_trees_have_as_many_nodes_as_those_of_the_original_code() -> None:
    draws = generator(0, 0, "data")
    depths = draws.normal(7, 1, size=1000).astype(int)
    sizes = [sum(1 for _ in random_shape(draws, int(depth)).nodes()) for depth in depths]
    assert np.mean(sizes) == pytest.approx(33.1, abs=1.5)


def value(tree: Tree) -> int:
    return tree.label - 1 if not tree.children else sum(map(value, tree.children)) % 3


def test_reducing_again_and_again_gives_the_sum() -> None:
    draws = generator(1, 0, "data")
    for depth in (1, 3, 6):
        leaves = (int(draws.integers(1, 4)) for _ in itertools.count())
        tree = label_tree(random_shape(draws, depth), leaves, itertools.repeat(4))
        wanted = value(tree)
        for _ in range(depth):
            assert tree.children
            tree = reduce_sums(tree)
        assert tree == Tree(wanted + 1)


def test_rotation_keeps_the_leaves_in_order() -> None:
    def leaves(tree: Tree) -> list[int]:
        return [label for label, _ in in_order(tree, "depth") if label < 11]

    for seed in range(20):
        tree = random_tree(seed, 6)
        assert leaves(rotate(tree)) == leaves(tree)
