"""Give a network its weights: the same numbers for the same seed, on every machine.

Weights are drawn from NumPy's legacy generator (`numpy.random.RandomState(seed)`, the numbers of `numpy.random.seed`),
parameter after parameter in the order of the function; all the others are constants that leave the signal alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import wraps
from math import prod, sqrt
from typing import ParamSpec, TypeAlias

import numpy as np

from te_lite.errors import require

from ..ir.errors import GraphError
from ..ir.module import IRModule
from ..ir.nodes import Array, Expr, Function

P = ParamSpec("P")
Workload: TypeAlias = tuple[IRModule, dict[str, Array]]

_FILL = {"bias": 0.0, "gamma": 1.0, "beta": 0.0, "mean": 0.0, "var": 1.0}
_BLOCK = 1 << 20


class Initializer:
    """Fills a parameter; the suffix of its name says what it is.  A subclass says what a weight is."""

    def __call__(self, name: str, array: Array, rng: np.random.RandomState) -> None:
        """Fill `array` in place.  Raises GraphError when the suffix is unknown."""
        if name.endswith("weight"):
            self.weight(name, array, rng)
            return
        suffix = next((s for s in _FILL if name.endswith(s)), None)
        law = f"its name must end in weight, {', '.join(_FILL)}"
        require(suffix is not None, GraphError, "initializer", law, parameter=name)
        assert suffix is not None
        array[...] = _FILL[suffix]

    def weight(self, name: str, array: Array, rng: np.random.RandomState) -> None:
        """Fill a weight in place."""
        raise NotImplementedError


class Xavier(Initializer):
    """Weights of a spread that keeps the size of a signal: `sqrt(magnitude / factor)`, uniform or gaussian.

    `factor_type` is `in`, `out` or `avg` (their mean): the fan is `shape[1]` or `shape[0]` times the product of the
    later extents, whatever the layout of the weight (Glorot and Bengio, 2010).  A name with `depthwise` in it has that
    product alone.
    """

    def __init__(self, rnd_type: str = "uniform", factor_type: str = "avg", magnitude: float = 3.0) -> None:
        require(rnd_type in ("uniform", "gaussian"), GraphError, "xavier", "uniform or gaussian", rnd_type=rnd_type)
        require(factor_type in ("in", "out", "avg"), GraphError, "xavier", "in, out or avg", factor_type=factor_type)
        self.rnd_type = rnd_type
        self.factor_type = factor_type
        self.magnitude = float(magnitude)

    def weight(self, name: str, array: Array, rng: np.random.RandomState) -> None:
        """Draw a weight of rank 2 or more.  Raises GraphError for rank 1."""
        scale = self.scale(name, array.shape)
        flat = array.reshape(-1)
        for start in range(0, flat.size, _BLOCK):
            part = flat[start : start + _BLOCK]
            uniform = self.rnd_type == "uniform"
            part[...] = rng.uniform(-scale, scale, part.size) if uniform else rng.normal(0.0, scale, part.size)

    def scale(self, name: str, shape: tuple[int, ...]) -> float:
        """The bound of the uniform draw, or the deviation of the gaussian one."""
        require(len(shape) >= 2, GraphError, "xavier", "a weight has rank 2 or more", parameter=name, shape=shape)
        window = float(prod(shape[2:]))
        fan_in, fan_out = shape[1] * window, shape[0] * window
        factor = {"in": fan_in, "out": fan_out, "avg": (fan_in + fan_out) / 2.0}[self.factor_type]
        return sqrt(self.magnitude / (window if "depthwise" in name else factor))


class Constant(Initializer):
    """Every element of a weight is one over the number of elements."""

    def weight(self, name: str, array: Array, rng: np.random.RandomState) -> None:
        """Fill a weight; nothing is drawn."""
        array[...] = 1.0 / array.size


def create_workload(
    net: Function | Expr, initializer: Initializer | None = None, seed: int = 0, inputs: Collection[str] = ("data",)
) -> Workload:
    """A module whose `main` is `net`, and an array for every parameter that is not in `inputs`, by name.

    `initializer` is `Xavier()` unless given.  Raises GraphError for a parameter no initializer knows, or a name that
    two parameters share.
    """
    module = IRModule.from_expr(net)
    fill = initializer or Xavier()
    rng = np.random.RandomState(seed)
    params: dict[str, Array] = {}
    for var in module["main"].params:
        require(var.name not in params, GraphError, "workload", "names must be unique", parameter=var.name)
        if var.name not in inputs:
            array = np.zeros(var.shape, var.dtype)
            fill(var.name, array, rng)
            params[var.name] = array
    return module, params


def workload_of(get_net: Callable[P, Function], inputs: Collection[str] = ("data",)) -> Callable[P, Workload]:
    """The function `get_workload` of a network: `get_net` with the same arguments, through `create_workload`."""

    @wraps(get_net)
    def get_workload(*args: P.args, **kwargs: P.kwargs) -> Workload:
        return create_workload(get_net(*args, **kwargs), inputs=inputs)

    get_workload.__name__ = get_workload.__qualname__ = "get_workload"
    get_workload.__doc__ = "The network of `get_net` as a module, and its parameters."
    return get_workload
