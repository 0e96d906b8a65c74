"""TfIdfVectorizer: how often each sequence of numbers out of a known pool occurs in every row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ...ir.nodes import Array, Expr
from .emit import add, binary, call, cast, const, mul, reshape
from .node import Converters, Node

MODES = ("TF", "IDF", "TFIDF")


def tf_idf(node: Node) -> Expr:
    """TfIdfVectorizer of integers: counts (rows, coordinates) of n-grams, float32, weighted as `mode` says.

    The numbers of an n-gram may lie 1 to 1 + max_skip_count steps apart, all equally far.
    """
    x, mode = node.input(0), node.text("mode")
    node.require(mode in MODES, f"mode must be one of {', '.join(MODES)}", mode=mode)
    node.require(len(x.shape) in (1, 2) and x.dtype in ("int32", "int64"), "one or two axes of integers are needed",
                 shape=x.shape, dtype=x.dtype)  # fmt: skip
    least, most, skips = (node.integer(f"{word}_{what}") for word, what in
                          (("min", "gram_length"), ("max", "gram_length"), ("max", "skip_count")))  # fmt: skip
    node.require(1 <= least <= most and skips >= 0, "1 <= min_gram_length <= max_gram_length is needed, and skips >= 0",
                 min_gram_length=least, max_gram_length=most, max_skip_count=skips)  # fmt: skip
    rows = x if len(x.shape) == 2 else reshape(x, (1, *x.shape))
    pools, places = _pools(node), node.integers("ngram_indexes")
    sizes = [len(p) for p in pools]
    node.require(sum(sizes) == len(places) > 0 and min(places) >= 0, "ngram_indexes must have one entry an n-gram",
                 ngrams=sum(sizes), ngram_indexes=len(places))  # fmt: skip
    weights = _weights(node, len(places))
    out: Expr = const(np.zeros((rows.shape[0], max(places) + 1)), "float32")
    for n, pool in enumerate(pools, 1):
        known = sum(sizes[: n - 1])
        if least <= n <= most and len(pool):
            found = _scored(_counts(rows, pool, skips), mode, weights[known : known + len(pool)])
            spread = np.zeros((len(pool), out.shape[1]))
            spread[np.arange(len(pool)), places[known : known + len(pool)]] = 1
            out = add(out, call("nn.matmul", found, const(spread, "float32")))
    return out if len(x.shape) == 2 else reshape(out, out.shape[1:])


def _pools(node: Node) -> list[Array]:
    """The n-grams of length 1, 2, ... as rows."""
    law = "n-grams of text are not supported"
    node.require(not node.has("pool_strings"), law)
    pool, starts = np.array(node.integers("pool_int64s")), node.integers("ngram_counts")
    ends = (*starts[1:], len(pool))
    whole = all(0 <= s <= e and (e - s) % n == 0 for n, (s, e) in enumerate(zip(starts, ends, strict=True), 1))
    node.require(whole, "ngram_counts must cut the pool into n-grams of length 1, 2, ...", ngram_counts=starts)
    return [pool[s:e].reshape(-1, n) for n, (s, e) in enumerate(zip(starts, ends, strict=True), 1)]


def _weights(node: Node, count: int) -> Sequence[float]:
    weights = node.numbers("weights", (1.0,) * count)
    node.require(len(weights) == count, f"{count} weights are needed, one an n-gram", weights=len(weights))
    return weights


def _counts(rows: Expr, pool: Array, skips: int) -> Expr:
    """How often each n-gram of the pool occurs in each row, float32."""
    total: Expr = const(np.zeros((rows.shape[0], len(pool))), "float32")
    for at in _windows(rows.shape[1], pool.shape[1], skips):
        read = call("expand_dims", call("take", rows, const(at, "int32"), axis=1), axis=2)
        same = call("all", binary("equal", read, const(pool, rows.dtype)), axis=(3,), keepdims=False)
        total = add(total, call("sum", cast(same, "float32"), axis=(1,), keepdims=False))
    return total


def _windows(extent: int, n: int, skips: int) -> Iterator[Array]:
    """The positions (windows, n) of all windows whose elements lie 1, 2, ... steps apart; a single one has no steps."""
    for step in range(1, 2 + (skips if n > 1 else 0)):
        count = extent - (n - 1) * step
        if count > 0:
            yield np.arange(count)[:, None] + np.arange(n) * step


def _scored(counts: Expr, mode: str, weights: Sequence[float]) -> Expr:
    if mode == "TF":
        return counts
    shown = counts if mode == "TFIDF" else cast(binary("greater", counts, 0.0), "float32")
    return mul(shown, const(weights, "float32"))


CONVERTERS: Converters = {"TfIdfVectorizer": {9: tf_idf}}
