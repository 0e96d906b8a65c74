"""Nests for large tensors that are read about once, at sizes that need them: right beside float64 of PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore")]
pytest.importorskip("pycuda.driver", exc_type=ImportError)
torch = pytest.importorskip("torch")

from relay_lite import pytorch as front  # noqa: E402

F = torch.nn.functional
LIMIT = 1e-5
"""Of an error relative to one plus the value; sums of millions of floats are summed up in parts."""
CASES: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "turn": (lambda x: x.t() + x[0, 0], (4096, 2048)),
    "turn of primes": (lambda x: x.t() + x[0, 0], (2039, 1031)),
    "channels last": (lambda x: x.permute(0, 2, 3, 1).contiguous(), (8, 65, 63, 67)),
    "channels first": (lambda x: x.permute(0, 3, 1, 2) * 2, (8, 63, 67, 66)),
    "rows": (lambda x: x.mean(1), (3001, 1013)),
    "few rows": (lambda x: x.sum((1, 2)), (3, 1021, 2053)),
    "columns": (lambda x: x.amax(1), (5, 517, 1027)),
    "few columns": (lambda x: x.mean(0), (500_009, 7)),
    "all": (lambda x: (x * x).mean(), (1009, 2027)),
    "places of least": (lambda x: x.argmin(1), (31, 257, 301)),
    "places of greatest in rows": (lambda x: x.argmax(-1), (1500, 1021)),
    "instance norm": (F.instance_norm, (3, 5, 301, 299)),
    "batch norm": (lambda x: F.batch_norm(x, None, None, training=True), (6, 17, 101, 103)),
    "greatest of windows": (lambda x: F.max_pool2d(x, 4, 1, 1), (4, 16, 131, 129)),
    "greatest of strided windows": (lambda x: F.max_pool3d(x, 3, 2, 1, 3), (2, 8, 61, 63, 65)),
    "average of windows": (lambda x: F.avg_pool2d(x, 11), (8, 64, 121, 133)),
    "average of rows": (lambda x: F.avg_pool1d(x, 8, 1, 4), (16, 64, 1511)),
}


@pytest.mark.parametrize("name", CASES)
def test_large_tensors_that_are_read_once(name: str) -> None:
    run, shape = CASES[name]
    torch._dynamo.reset()
    torch.manual_seed(7)
    x = torch.randn(*shape, device="cuda") + 3
    with torch.no_grad():
        got = torch.compile(run, backend=front.ansor, options={"trials": 0})(x)
        want = run(x.double())
    if got.dtype == torch.int64:
        assert torch.equal(got, run(x))
        return
    assert got.shape == want.shape
    assert float(((got - want).abs() / (1 + want.abs())).max()) < LIMIT
