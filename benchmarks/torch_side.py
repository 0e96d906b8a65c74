"""PyTorch's side of `benchmarks.onnx_networks`: a model of the zoo, eager and compiled, in each memory format."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from benchmarks import pytorch
from benchmarks.operator_sides import MODES
from benchmarks.zoo_check import LIMIT
from benchmarks.zoo_models import live_model
from relay_lite.tuning.tune_network import largest_difference

Array = np.ndarray[Any, np.dtype[Any]]


def torch_runs(
    name: str, inputs: Sequence[Array], want: Sequence[Array], threads: int
) -> Mapping[str, Callable[[], object]]:
    """Calls of model `name` at its usual size on `inputs`, by mode and memory format.

    Raises AssertionError where a result is another one than `want`, and what PyTorch's compiler raises.
    """
    torch = pytorch.exact_torch()
    torch.set_num_threads(threads)
    torch.compiler.reset()
    model, _ = live_model(name, full_size=True)
    formats, stored = pytorch.formats(torch), pytorch.in_formats(torch, [torch.from_numpy(x) for x in inputs])
    runs: dict[str, Callable[[], object]] = {}
    for mode, (layout, tensors) in product(MODES, stored.items()):
        variant = f"{mode} {layout}".strip()
        held = copy.deepcopy(model).to(memory_format=formats[layout]) if layout else model
        run = partial(held if mode == "eager" else torch.compile(held, dynamic=False), *tensors)
        result = run()
        outputs = result if isinstance(result, tuple) else (result,)
        error = max(largest_difference(x.contiguous().numpy(), y) for x, y in zip(outputs, want, strict=True))
        assert error <= LIMIT, f"{name}, PyTorch {variant}: the result differs from onnxruntime's by {error:.1e}"
        runs[variant] = run
    return runs
