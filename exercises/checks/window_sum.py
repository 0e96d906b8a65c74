"""Sums of three neighbours, by NumPy's sliding windows."""

from types import ModuleType

import numpy as np

import te_lite as te
from te_lite.meaning.reference import evaluate

from ..core.verdict import function, need

HINT = """A compute has a shape and a function from an index to an element. The last window begins at x[n - 3]: how many
beginnings are there?"""


def check(answer: ModuleType) -> None:
    """The shape first, since whatever is longer reads beyond x; then values."""
    window_sum, rng = function(answer, "window_sum"), np.random.default_rng(1)
    for n in (17, 4, 3, 64):
        x = te.placeholder((n,), name="x")
        out = window_sum(x)
        need(hasattr(out, "op"), "`window_sum` must give a tensor back, as `te.compute` makes one")
        need(out.shape != (n,), f"of {n} elements you make {n} sums, so the last ones read beyond x: there are n - 2")
        need(out.shape == (n - 2,), f"of {n} elements you make the shape {tuple(out.shape)}: there are n - 2 windows")
        values = rng.standard_normal(n).astype("float32")
        got = evaluate([x, out], {x: values})[out]
        want = np.lib.stride_tricks.sliding_window_view(values, 3).sum(axis=1)
        need(np.abs(got * 3 - want).max() > 1e-4, "these are means: nobody asked to divide by 3")
        i = int(np.abs(got - want).argmax())
        three = ", ".join([f"{v:.3g}" for v in values[i : i + 3]])
        example = f"at i = {i} these are {three}, so {want[i]:.3g} is right, and you give {got[i]:.3g}"
        need(np.allclose(got, want, atol=1e-5), f"some sums differ from x[i] + x[i + 1] + x[i + 2]: {example}")
