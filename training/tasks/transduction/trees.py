"""Labelled binary trees: random ones, functions of them, and their nodes in order.

Nodes have heap ids: the root is 1, the children of node n are 2n and 2n + 1. The functions are
those of Kogkalidis, Bernardy and Garg (2024, section 4.2, and their code).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np

Order = Literal["breadth", "depth"]
"""Order of the nodes of a tree: level by level, or each node before its left and right subtree."""
LAST_PARENT = 2**61
"""Heap ids above this have no children."""


class Tree(NamedTuple):
    """A node with its label, and its two subtrees or none."""

    label: int
    children: tuple[Tree, ...] = ()

    @property
    def depth(self) -> int:
        """Number of edges to the deepest leaf."""
        return 1 + max(child.depth for child in self.children) if self.children else 0

    def nodes(self) -> Iterator[Tree]:
        """Yield all subtrees, this one first."""
        yield self
        for child in self.children:
            yield from child.nodes()


def random_shape(draws: np.random.Generator, depth: int) -> Tree:
    """Return a random tree of exactly this depth, with labels 0.

    One subtree of a node has any depth. If that is less than the depth that is left, the other
    subtree has all of it, otherwise any depth again.
    """
    if not depth:
        return Tree(0)
    first = int(draws.integers(depth))
    second = depth - 1 if first < depth - 1 else int(draws.integers(depth))
    pair = (random_shape(draws, first), random_shape(draws, second))
    return Tree(0, pair if draws.integers(2) else pair[::-1])


def label_tree(tree: Tree, leaves: Iterator[int], operators: Iterator[int]) -> Tree:
    """Label a tree: its leaves with the next of `leaves`, its inner nodes with `operators`."""
    label = next(operators if tree.children else leaves)
    return Tree(label, tuple(label_tree(child, leaves, operators) for child in tree.children))


def in_order(tree: Tree, order: Order) -> list[tuple[int, int]]:
    """Return the labels and heap ids of all nodes in an order."""
    nodes, waiting = [], deque([(tree, 1)])
    while waiting:
        node, heap = waiting.popleft()
        nodes.append((node.label, heap))
        children = [(child, 2 * heap + side) for side, child in enumerate(node.children)]
        if order == "breadth":
            waiting.extend(children)
        else:
            waiting.extendleft(reversed(children))
    return nodes


class TreeTarget(NamedTuple):
    """A target tree that is written node by node; the second axis of positions is the heap id.

    Labels from `first_operator` are inner nodes, except `leaf`. The start symbol has the id 0.
    """

    first_operator: int
    order: Order
    leaf: int | None = None
    waiting: tuple[int, ...] = (0,)

    @property
    def has_ended(self) -> bool:
        """Whether no node lacks a child."""
        return not self.waiting

    def read(self, token: int) -> tuple[tuple[int, ...], TreeTarget]:
        """Return the heap id of the node with the label `token`, and the target after it."""
        node, *others = self.waiting
        children: tuple[int, ...] = ()
        if node == 0:  # the start symbol, which the root follows
            children = (1,)
        elif token >= self.first_operator and token != self.leaf:
            children = (2 * node, 2 * node + 1)
        if node > LAST_PARENT:  # such targets are wrong, and end here
            return (node,), self._replace(waiting=())
        after = (*others, *children) if self.order == "breadth" else (*children, *others)
        return (node,), self._replace(waiting=after)


def rotate(tree: Tree) -> Tree:
    """Return the tree with (r (p a b) c) turned into (p a' (r b' c')), recursively.

    A tree whose left child is a leaf does not change.
    """
    if not tree.children or not tree.children[0].children:
        return tree
    left, c = tree.children
    a, b = left.children
    return Tree(left.label, (rotate(a), Tree(tree.label, (rotate(b), rotate(c)))))


def reduce_sums(tree: Tree) -> Tree:
    """Return the tree with each inner node above two leaves replaced by the sum of their values.

    Labels 1, 2, 3 have the values 0, 1, 2 of the cyclic group of three elements.
    """
    if not tree.children:
        return tree
    if any(child.children for child in tree.children):
        return Tree(tree.label, tuple(map(reduce_sums, tree.children)))
    return Tree(sum(child.label - 1 for child in tree.children) % 3 + 1)


Operation = Literal["extract", "flip", "truncate", "keep"]
OPERATIONS: tuple[Operation, ...] = ("extract", "flip", "truncate", "keep")
"""Extract the subtree; the same with the children of its root exchanged; replace it by a leaf with
its label; leave the tree as it is."""


def apply_operation(operation: Operation, label: int, tree: Tree) -> Tree:
    """Apply an operation to the subtree whose root has a label, which occurs once."""
    if operation == "keep":
        return tree
    if operation == "truncate":
        if tree.label == label:
            return Tree(label)
        parts = (apply_operation(operation, label, child) for child in tree.children)
        return Tree(tree.label, tuple(parts))
    subtree = next(node for node in tree.nodes() if node.label == label)
    return subtree if operation == "extract" else Tree(subtree.label, subtree.children[::-1])
