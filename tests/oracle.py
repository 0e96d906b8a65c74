"""Compare a lowered program with the workload it was made from."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from te_lite import ComputeDAG, LoweredFunc, Tensor
from te_lite.meaning.reference import evaluate, random_inputs

Run = Callable[[LoweredFunc, Sequence[np.ndarray]], None]

TOLERANCE = {"float16": 2e-2, "float32": 2e-5, "float64": 1e-12}


def poisoned(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """An array full of values that no correct program leaves behind."""
    out = np.empty(shape, dtype)
    out.fill(np.nan if dtype.startswith("float") else np.iinfo(dtype).min + 1)
    return out


class Oracle:
    """Inputs and float64 reference outputs of one computation."""

    def __init__(self, dag: ComputeDAG, rng: np.random.Generator) -> None:
        self.dag = dag
        self.inputs = random_inputs(dag.tensors, rng)
        self.reference = evaluate(dag.tensors, self.inputs, dtype="float64")

    def arguments(self) -> list[np.ndarray]:
        return [self.inputs[t].copy() if t in self.inputs else poisoned(t.shape, t.dtype) for t in self.dag.tensors]

    def mismatch(self, func: LoweredFunc, run: Run) -> str | None:
        """What is wrong with the outputs of `func`, or None."""
        args = self.arguments()
        run(func, args)
        return self.compare(args)

    def compare(self, args: Sequence[np.ndarray]) -> str | None:
        for tensor, got in zip(self.dag.tensors, args, strict=True):
            text = _difference(tensor, got, self.inputs.get(tensor, self.reference.get(tensor)))
            if text:
                return text
        return None


def _difference(tensor: Tensor, got: np.ndarray, want: np.ndarray | None) -> str | None:
    assert want is not None
    error = np.abs(got.astype("float64") - want)
    scale = max(float(np.abs(want).max()), 1e-30)
    limit = TOLERANCE.get(tensor.dtype, 0.0) * scale
    bad = ~(error <= limit)
    if not bad.any():
        return None
    at = np.unravel_index(int(np.argmax(np.where(np.isnan(error), np.inf, error))), got.shape)
    return (
        f"{tensor.name}{[int(x) for x in at]} is {got[at]!r}, not {want[at]!r} ({int(bad.sum())} of {bad.size} wrong)"
    )
