"""What PyTorch holds at once for the results of a graph."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from functorch.compile import make_boxed_func
from torch import nn
from torch._dynamo.backends.common import aot_autograd

from relay_lite.pytorch.eager_bytes import eager_bytes

pytestmark = pytest.mark.torch
SIZE = 4 * 2 * 8 * 9 * 9
"""The bytes of a tensor (2, 8, 9, 9) of float32."""
CONV, NORM = nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8)


@pytest.mark.parametrize(
    ("what", "tensors"),
    [
        (CONV, 1),
        (nn.Sequential(CONV, nn.ReLU()), 1),  # perhaps in place
        (nn.Sequential(CONV, nn.Tanh()), 2),
        (nn.Sequential(CONV, nn.Tanh(), nn.Sigmoid(), nn.Tanh()), 2),  # perhaps one operator
        (nn.Sequential(CONV, nn.MaxPool2d(3, 1, 1), CONV, CONV), 2),
        (lambda x: CONV(x) + CONV(CONV(x)), 3),
        (lambda x: (CONV(x), CONV(x), CONV(x)), 3),
        (lambda x: CONV(x).permute(0, 2, 3, 1).reshape(2, 648), 2),  # reshape has to copy
        (lambda x: CONV(x).reshape(2, -1).view(2, 8, 81), 1),
        (lambda x: torch.sin(x), 1),
    ],
)
def test_what_is_held_at_once(what: Any, tensors: int) -> None:
    assert held(what) == tensors * SIZE


def test_of_several_results_those_that_nobody_reads_are_not_held() -> None:
    assert 2 * SIZE <= held(nn.Sequential(CONV, NORM, nn.ReLU(), CONV)) < 2.1 * SIZE


def held(what: Any) -> int:
    """What is said of the graph that TorchDynamo and AOTAutograd make of a function."""
    seen: list[int] = []

    def counted(graph: Any, inputs: Any) -> Any:
        seen.append(eager_bytes(graph.graph))
        return make_boxed_func(graph)

    torch._dynamo.reset()
    backend = aot_autograd(fw_compiler=counted, inference_compiler=counted)
    with torch.no_grad():
        torch.compile(what, backend=backend)(torch.rand(2, 8, 9, 9))
    return seen[0]
