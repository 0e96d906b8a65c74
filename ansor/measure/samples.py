"""Right values of an output at some of its elements, where it is too large for a reference of all.

Corners, edges and random elements are taken, as many as a budget of evaluations allows, or all there are.  Where an
element needs long reductions that its neighbours need, too (the sum of a row), elements of few rows are taken.
`accepted_at` is `check.accepted_values` at points, on inputs that are drawn (`te_lite/meaning/drawn.py`).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from te_lite import ComputeDAG, Tensor
from te_lite.meaning.drawn import DrawnArray, key_of

from .check import Accepted, accepted, save_whole
from .demand import Demand
from .points import Given, PointReference
from .rounding import rounding_errors

Array = np.ndarray[Any, np.dtype[Any]]
BUDGET = 1 << 24
"""Terms of reductions, and elements, that are evaluated for the samples of an output; twice those of one, if more."""
AT_MOST = 1 << 27
"""The same where `LEAST` samples need more."""
MOST, LEAST = 4096, 64
CORNERS = 32
VALUES_OF_DEAR_AXES = (4, 2)


@dataclass(frozen=True, eq=False)
class Samples:
    """Elements of an output of `size` elements: `places` are flat indices, which rise, `right` what is accepted there.

    `exact`: rounding changes nothing, here and elsewhere.
    """

    size: int
    places: Array
    right: Accepted
    exact: bool

    @property
    def whole(self) -> bool:
        """Whether they are all elements."""
        return len(self.places) == self.size

    def save(self, stem: Path) -> None:
        """Keep them in files whose names start with `stem`."""
        self.right.save(stem)
        save_whole(stem.with_name(f"{stem.name}.places.npy"), self.places)

    def joined(self, places: Array, right: Accepted) -> Samples:
        """With more elements, none of which is among these."""
        order = np.argsort(all_places := np.concatenate([self.places, places]))
        low, high, nan = [
            np.concatenate(pair)[order]
            for pair in ((self.right.low, right.low), (self.right.high, right.high), (_nan(self.right), _nan(right)))
        ]
        return Samples(self.size, all_places[order], Accepted(low, high, nan if nan.any() else None), self.exact)


def _nan(right: Accepted) -> Array:
    return np.zeros(right.low.shape, bool) if right.nan is None else right.nan


class Definition:
    """What the outputs of a computation are, element by element, on inputs drawn from `seed`.

    Some of them may be `known`, with their errors: what others need of them is not evaluated again.
    """

    def __init__(self, dag: ComputeDAG, seed: int, precision: str) -> None:
        self.dag, self.seed = dag, seed
        self.known: dict[Tensor, Given] = {}
        self.inputs = {k: drawn_input(dag, k, seed) for k, t in enumerate(dag.tensors) if t in dag.inputs}
        self._errors = rounding_errors(dag, precision)

    def know(self, tensor: Tensor, values: Array, error: Array) -> None:
        """Take an output as known: its elements, and what they may be off by, float64."""
        for one, array in zip(self._with_error(tensor), (values, error), strict=False):
            self.known[one] = partial(_elements, array)

    def samples(self, k: int, folder: Path) -> Samples:
        """Those of output `k`: what `folder` has, or new ones, which are kept there.  Raises InterpError."""
        tensor, stem = self.dag.tensors[k], folder / f"{k}.samples"
        kept, path, exact = Accepted.load(stem), stem.with_name(f"{stem.name}.places.npy"), tensor not in self._errors
        if kept is not None and path.exists():
            return Samples(prod(tensor.shape), np.load(path, allow_pickle=False), kept, exact)
        places = chosen_places(
            tensor.shape, Demand(self._with_error(tensor), self.known), np.random.default_rng([self.seed, k])
        )
        made = Samples(prod(tensor.shape), places, self.accepted_at(k, places), exact)
        made.save(stem)
        return made

    def accepted_at(self, k: int, places: Array) -> Accepted:
        """What is right for output `k` at flat indices.  Raises InterpError."""
        tensor, wanted = self.dag.tensors[k], self._with_error(self.dag.tensors[k])
        given: dict[Tensor, Given] = {self.dag.tensors[n]: partial(one.at, wide=True) for n, one in self.inputs.items()}
        indices = np.unravel_index(places, tensor.shape) if tensor.shape else ()
        values = PointReference(wanted, given | self.known).at(wanted, indices)
        return accepted(values[0], values[1] if len(values) > 1 else None, tensor.dtype)

    def _with_error(self, tensor: Tensor) -> list[Tensor]:
        return [tensor, *([self._errors[tensor]] if tensor in self._errors else [])]


def _elements(array: Array, indices: Sequence[Array]) -> Array:
    found: Array = array[tuple(indices)]
    return found


def drawn_input(dag: ComputeDAG, k: int, seed: int) -> DrawnArray:
    """Input `k` as it is drawn from `seed`."""
    return DrawnArray(dag.tensors[k].shape, dag.tensors[k].dtype, key_of(seed, k))


def chosen_places(shape: tuple[int, ...], demand: Demand, rng: np.random.Generator) -> Array:
    """Flat indices of the elements that are looked at."""
    size, count, reach = prod(shape), MOST, list(shape)
    budget, most = [max(limit, 2 * demand.work(1, shape)) for limit in (BUDGET, AT_MOST)]
    if size == 1 or (size <= MOST and demand.work(size, shape) <= budget):
        return np.arange(size)
    while count > LEAST and demand.work(count, shape) > budget:
        count //= 2
    for values, limit in zip(VALUES_OF_DEAR_AXES, (budget, most), strict=True):
        if demand.work(count, reach) > limit:
            dear = _dear(demand, count, shape)
            reach = [min(n, values) if d in dear else n for d, n in enumerate(shape)]
    while count > 1 and demand.work(count, reach) > most:
        count //= 2
    return _spread(shape, reach, count, rng)


def _dear(demand: Demand, count: int, reach: Sequence[int]) -> frozenset[int]:
    """The axes that decide which points of the longest reductions are needed."""
    dear = [n.axes for n in demand.needed if n.work(count, reach) > BUDGET // 8]
    return frozenset[int]().union(*dear)


def _spread(shape: tuple[int, ...], reach: Sequence[int], count: int, rng: np.random.Generator) -> Array:
    """`count` elements whose axes take `reach` values each, first and last among them: corners, edges, others."""
    values = [_values(n, r, rng) for n, r in zip(shape, reach, strict=True)]
    corners = list(itertools.islice(itertools.product(*[(0, n - 1) for n in shape]), CORNERS))
    points = np.stack([v[rng.integers(0, len(v), count)] for v in values], axis=1)
    half = count // 2
    for row in range(half):  # an axis at an end, in turns
        d = row // 2 % len(shape)
        points[row, d] = (0, shape[d] - 1)[row % 2]
    rng.shuffle(corners)
    for row, corner in enumerate(corners[: max(1, count // 2)]):
        points[count - 1 - row] = corner
    return np.unique(np.ravel_multi_index(tuple(points.T), shape))


def _values(extent: int, reach: int, rng: np.random.Generator) -> Array:
    if reach >= extent:
        return np.arange(extent)
    return np.unique(np.concatenate([[0, extent - 1], rng.integers(0, extent, max(0, reach - 2))]))


def samples_of(definition: Definition, folder: Path, but_last: int = 0) -> Mapping[int, Samples]:
    """The samples of every output, by argument number, but of some of the last tensors.  Raises InterpError."""
    dag = definition.dag
    own = dag.tensors[: len(dag.tensors) - but_last]
    return {k: definition.samples(k, folder) for k, t in enumerate(own) if t in dag.outputs}
