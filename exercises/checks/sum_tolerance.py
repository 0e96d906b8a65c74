"""Tolerances: right sums in several orders are accepted, planted faults are not."""

from collections.abc import Iterator
from types import ModuleType

import numpy as np

from ..core.verdict import function, need

HINT = """Where large terms cancel, the result says nothing about how large the error may be; the sizes of the terms do.
And: what is `abs(nan) > x`, and what is `abs(nan) <= x`?"""


def right_sums(products: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """The sums of rows in float32, added up in three orders."""
    yield "one term after the other", np.cumsum(products, axis=1, dtype="float32")[:, -1]
    yield "backwards", np.cumsum(products[:, ::-1], axis=1, dtype="float32")[:, -1]
    yield "in pairs", products.astype("float32").sum(axis=1)


def faults(exact: np.ndarray, products: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Results of wrong programs, most of whose elements are right."""
    unwritten = exact.astype("float32")
    unwritten[3] = np.nan
    yield "an element that nobody wrote (NaN)", unwritten
    dropped = exact.copy()
    dropped[5] -= products[5, np.abs(products[5]).argmax()]
    yield "a sum that lacks one of its terms", dropped.astype("float32")
    off = exact.copy()
    off[7] += 1e-3 * np.abs(products[7]).sum()
    yield "a result that is off by a thousandth of its scale", off.astype("float32")
    endless = exact.astype("float32")
    endless[0] = np.inf
    yield "an infinity", endless


def check(answer: ModuleType) -> None:
    """Values around 1, around a millionth and around a million; sums that cancel."""
    agrees, rng = function(answer, "agrees"), np.random.default_rng(6)
    for size in (1.0, 1e-3, 1e3):
        for terms in (16, 512):
            products = (rng.standard_normal((64, terms)) * rng.standard_normal((64, terms)) * size**2).astype("float32")
            products[:, terms // 2 :] = -products[:, : terms // 2]
            products[:, -1] += np.float32(size**2)
            exact, scale = products.sum(axis=1, dtype="float64"), np.abs(products).sum(axis=1, dtype="float64")
            case = f"{terms} terms of size {size**2:g}"
            for order, got in right_sums(products):
                fine = agrees(got, exact, scale, terms)
                need(fine, f"{case}, added {order}: this is rounding and nothing else, and you refuse it")
            for what, got in faults(exact, products):
                need(not agrees(got, exact, scale, terms), f"{case}: {what} is accepted")
