"""Results of operators that are not ours: positions of pooled maxima, means of norms.  They stay in PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("relay_lite.pytorch")
pytestmark = pytest.mark.torch
F = torch.nn.functional

CASES: dict[str, tuple[tuple[int, ...], Callable[[Any], Any]]] = {
    "pool 1": ((2, 3, 9), lambda x: F.max_pool1d(x, 2, return_indices=True)[1]),
    "pool 2": ((1, 2, 6, 6), lambda x: F.max_pool2d(x, 2, return_indices=True)[1]),
    "pool 2 both": ((1, 2, 7, 6), lambda x: [t + 1 for t in F.max_pool2d(x * 2, 3, 2, 1, return_indices=True)]),
    "pool 3": ((1, 1, 4, 4, 4), lambda x: F.max_pool3d(x, 2, return_indices=True)[1]),
    "adaptive": ((1, 2, 6, 6), lambda x: F.adaptive_max_pool2d(x, 2, return_indices=True)[1]),
    "unpool 1": ((1, 2, 8), lambda x: F.max_unpool1d(*F.max_pool1d(x, 2, return_indices=True), 2)),
    "unpool 2": ((1, 2, 6, 6), lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2) * 2),
    "layer norm": ((2, 3, 8), lambda x: torch.native_layer_norm(x, [8], None, None, 1e-5)),
    "its mean": ((2, 3, 8), lambda x: torch.native_layer_norm(x, [8], None, None, 1e-5)[1] + 1),
    "group norm": ((2, 4, 3, 3), lambda x: torch.native_group_norm(x, None, None, 2, 4, 9, 2, 1e-5)),
    "batch norm": ((4, 3, 5), lambda x: torch.native_batch_norm(x, None, None, None, None, True, 0.1, 1e-5)),
}


@pytest.mark.parametrize("name", CASES)
def test_of_a_compiled_graph(name: str) -> None:
    shape, f = CASES[name]
    x = torch.randn(shape, generator=torch.Generator().manual_seed(len(name)))
    torch._dynamo.reset()
    found, wanted = torch.compile(f, backend="ansor")(x), f(x)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
