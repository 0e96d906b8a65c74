"""Einsum: any contraction as diagonals, sums, transpositions and batched products, two operands at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from math import prod
from string import ascii_letters

import numpy as np

from ...ir.nodes import Expr
from .emit import broadcast_to, call, const, reshape, transpose
from .node import Converters, Node
from .product import product

Labelled = tuple[Expr, str]


def einsum(node: Node) -> Expr:
    """Einsum: one label an axis; equal labels go together, and those that the result does not name are summed over."""
    operands = [node.input(i) for i in range(len(node.inputs))]
    terms, result = _equation(node, [len(x.shape) for x in operands])
    parts = [_diagonal(node, x, term) for x, term in zip(operands, terms, strict=True)]
    _check_extents(node, parts)
    left = parts[0]
    for index, right in enumerate(parts[1:], 1):
        later = {*result, *"".join(term for _, term in parts[index + 1 :])}
        left = _contracted(_summed(left, {*right[1], *later}), _summed(right, {*left[1], *later}), later)
    x, labels = _summed(left, set(result))
    return transpose(x, [labels.index(label) for label in result])


def _equation(node: Node, ranks: Sequence[int]) -> tuple[list[str], str]:
    """The labels of every operand and of the result; an ellipsis is written as labels that are not used."""
    text = node.text("equation").replace(" ", "")
    left, arrow, result = text.partition("->")
    terms = left.split(",")
    node.require(len(terms) == len(ranks) and ranks, "the equation needs one term an operand", equation=text)
    plain = [term.replace("...", "") for term in terms]
    letters = set("".join(plain) + result.replace("...", ""))
    node.require(letters <= set(ascii_letters), "labels must be letters", equation=text)
    free = [c for c in ascii_letters if c not in letters]
    spare = [rank - len(p) for rank, p in zip(ranks, plain, strict=True)]
    fits = all(n == 0 or (n > 0 and "..." in t) for n, t in zip(spare, terms, strict=True))
    node.require(fits and max(spare) <= len(free), "every axis needs a label", equation=text, ranks=tuple(ranks))
    dots = "".join(free[: max(spare)])
    if not arrow:
        counts = Counter("".join(plain))
        result = ("..." if "..." in left else "") + "".join(sorted(c for c, n in counts.items() if n == 1))
    wide = [t.replace("...", dots[len(dots) - n :]) for n, t in zip(spare, terms, strict=True)]
    out = result.replace("...", dots)
    law = "every label of the result must be one of an operand, once"
    node.require(len(set(out)) == len(out) and set(out) <= set("".join(wide)), law, equation=text)
    return wide, out


def _diagonal(node: Node, x: Expr, labels: str) -> Labelled:
    """`x` with one axis a label: an axis that repeats a label is read along the diagonal."""
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            i, j = labels.index(label), labels.rindex(label)
            n = x.shape[i]
            node.require(n == x.shape[j], "axes of one label must agree", label=label, shape=x.shape)
            order = [a for a in range(len(x.shape)) if a not in (i, j)]
            flat = reshape(transpose(x, [i, j, *order]), (n * n, *(x.shape[a] for a in order)))
            x = call("take", flat, const(np.arange(n) * (n + 1), "int32"), axis=0)
            labels = label + "".join(labels[a] for a in order)
    return x, labels


def _check_extents(node: Node, parts: Iterable[Labelled]) -> None:
    extents: dict[str, int] = {}
    for x, labels in parts:
        for label, extent in zip(labels, x.shape, strict=True):
            known = extents.setdefault(label, extent)
            agree = extent == known or 1 in (extent, known)
            node.require(agree, "axes of one label must agree", label=label, extents=(known, extent))
            extents[label] = max(known, extent)


def _summed(part: Labelled, kept: set[str]) -> Labelled:
    """The operand summed over the axes that nothing else reads."""
    x, labels = part
    axes = tuple(i for i, label in enumerate(labels) if label not in kept)
    if not axes:
        return part
    return call("sum", x, axis=axes, keepdims=False), "".join(label for label in labels if label in kept)


def _contracted(a: Labelled, b: Labelled, later: set[str]) -> Labelled:
    """The product of two operands, summed over the labels of both that nothing reads later."""
    shared = [label for label in a[1] if label in b[1]]
    batch, inner = [c for c in shared if c in later], [c for c in shared if c not in later]
    rows, columns = ([c for c in one[1] if c not in shared] for one in (a, b))
    extents = {c: max(n, 1) for one in (a, b) for c, n in zip(one[1], one[0].shape, strict=True)}
    for one in (a, b):
        extents |= {c: n for c, n in zip(one[1], one[0].shape, strict=True) if n != 1}
    left, right = (_matrices(one, groups, extents) for one, groups in (
        (a, (batch, rows, inner)), (b, (batch, inner, columns))))  # fmt: skip
    out = product(left, right)
    labels = [*batch, *rows, *columns]
    return reshape(out, [extents[c] for c in labels]), "".join(labels)


def _matrices(part: Labelled, groups: Sequence[Sequence[str]], extents: dict[str, int]) -> Expr:
    """The operand with one axis a group of labels, all of full extent."""
    x, labels = part
    order = [c for group in groups for c in group]
    x = transpose(x, [labels.index(c) for c in order])
    return reshape(broadcast_to(x, [extents[c] for c in order]), [prod(extents[c] for c in g) for g in groups])


CONVERTERS: Converters = {"Einsum": {12: einsum}}
