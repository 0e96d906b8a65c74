"""Networks without a recorded task list: how many tasks TVM finds in them, how often they run, and their FLOPs."""

from __future__ import annotations

import json
from collections import Counter

import pytest

import ansor
from relay_lite.testing import get_workload, init


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights are left at zero: tasks do not depend on them, and drawing 138 million takes time."""
    monkeypatch.setattr(init.Xavier, "weight", lambda self, name, array, rng: None)


@pytest.mark.long
@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(
    ("name", "layout", "count", "total", "gflop", "digits", "repeated"),
    [
        ("resnet-50", "NHWC", 29, 57, 6.042, 3, [2, 2, 2, 2, 3, 3, 3, 3, 4, 5, 5, 6]),
        ("mobilenet", "NCHW", 22, 30, 1.148, 3, [5, 5]),
        ("inception_v3", "NCHW", 56, 110, 11.471, 3, None),
        ("resnet3d-18", "NHWC", 23, 24, 81.87, 2, [2]),
        ("resnet3d-18", "NCHW", 23, 24, None, 0, [2]),
        ("dcgan", "NCHW", 5, 5, 3.276, 3, []),
        ("vgg-16", "NCHW", 18, 22, 30.97, 2, None),
        ("densenet-121", "NCHW", 22, 126, 3.537, 3, None),
    ],
)  # fmt: skip
@pytest.mark.one_in(3)
def test_counts_on_cuda(
    name: str, layout: str, count: int, total: int, gflop: float | None, digits: int, repeated: list[int] | None
) -> None:
    graph, params = get_workload(name, batch_size=1, layout=layout)
    tasks, weights = ansor.extract_tasks(graph["main"], params, "cuda")
    assert (len(tasks), sum(weights)) == (count, total)
    assert repeated is None or sorted(w for w in weights if w > 1) == repeated
    if gflop is not None:
        flops = sum(w * max(t.compute_dag.flop_ct, 0) for t, w in zip(tasks, weights, strict=True))
        assert round(flops / 1e9, digits) == gflop
    by_shape = Counter({json.dumps(json.loads(t.workload_key)[1:3]): w for t, w in zip(tasks, weights, strict=True)})
    match name, layout:
        case "inception_v3", _:
            assert by_shape["[[1, 768, 17, 17], [192, 768, 1, 1]]"] == 12
            assert by_shape["[[1, 768, 17, 17], [1, 768, 17, 17]]"] == 4
        case "resnet3d-18", "NHWC":
            assert sum("T_multiply" in str(t.compute_dag) for t in tasks) == 12
