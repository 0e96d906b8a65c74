"""In which layouts a graph of few convolutions is tried on a GPU."""

from __future__ import annotations

import pytest
import torch

import relay_lite as relay
from relay_lite.pytorch.options import Options
from relay_lite.pytorch.variants import DIRECT, FIRST, USUAL, Variant, variants_of

pytestmark = pytest.mark.torch


def convolution(channels: int, filters: int, kernel: int, groups: int, turned: bool = False) -> relay.IRModule:
    x = relay.var("x", shape=(2, channels, 32, 31))
    w = relay.var("w", shape=(filters, channels // groups, kernel, kernel))
    y = relay.nn.relu(relay.nn.conv2d(x, w, padding=1, groups=groups, channels=filters, kernel_size=kernel))
    return relay.IRModule.from_expr(relay.Function([x, w], relay.transpose(y, (0, 2, 3, 1)) if turned else y))


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        (convolution(32, 32, 3, 32), [FIRST]),
        (convolution(32, 32, 3, 32, turned=True), [USUAL, FIRST]),
        (convolution(32, 32, 7, 32), [USUAL, FIRST]),
        (convolution(2, 2, 1, 1), [FIRST]),
        (convolution(64, 64, 1, 1), [USUAL, FIRST]),
        (convolution(16, 64, 3, 1), [USUAL, DIRECT, FIRST]),
    ],
)
def test_images_are_not_moved_for_what_takes_as_long_as_their_bytes(
    graph: relay.IRModule, expected: list[Variant]
) -> None:
    assert variants_of(graph, torch.device("cuda"), Options()) == expected
    assert variants_of(graph, torch.device("cpu"), Options()) == [USUAL]
