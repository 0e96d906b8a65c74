"""Tasks of networks, as their structure tells: an encoder, both layouts, the shortcuts of a residual network."""

from __future__ import annotations

from typing import Any

import pytest

from relay_lite import testing
from relay_lite.compiler.optimize import extract_tasks
from relay_lite.ir.nodes import Call, Expr, TupleGetItem
from relay_lite.ir.visit import post_order
from relay_lite.testing import resnet


@pytest.mark.parametrize("target", ["c", "cuda"])
def test_tasks_of_bert(target: str) -> None:
    """A layer: 3 dense, scores, softmax, mixing, 3 more dense, and two norms, a row program each."""
    found, counts = extract_tasks(*testing.get_workload("bert-base", num_layers=2), target)
    assert (len(found), sum(counts)) == (8, 2 * (3 + 3 + 3 + 2))


LONG = pytest.mark.long
VISION = {"hidden": 48, "num_heads": 3, "num_layers": 2}
WORDS = {**VISION, "seq_len": 16, "vocab_size": 50}


@pytest.mark.parametrize(
    ("name", "options", "count", "total"),
    [
        # The stem, 17 blocks of 3 (the first of 2), the last convolution, the pool, the dense layer.  Blocks of a
        # stage are alike from the second on (9 in all), and the first one of a stage widens as those before it do.
        # Stage by stage (its first block, its others): 1 + 2 + (3 + 3) + (2 + 3) + (2 + 3) + (1 + 3) + (2 + 3) + 1 + 3.
        pytest.param("mobilenet_v2", {}, 32, 1 + 2 + 16 * 3 + 3, marks=LONG),
        # Patches; a layer: two norms, packed product, scores, softmax, mixing, product, two dense; the norm; the head.
        pytest.param("vit_b_16", VISION, 1 + 1 + 7 + 1, 1 + 2 * (2 + 7) + 1 + 1, marks=LONG),
        ("gpt2", WORDS, 1 + 7, 2 * (2 + 7) + 1),
        # A norm is one kernel; the last one computes the sum that it reads, too, which nobody else does.  A layer: two
        # norms, query, key and value (two shapes), scores, softmax, mixing, product, gate, up, down; gate and up differ
        # in what follows them.
        ("llama-135m", {**WORDS, "num_heads": 6, "num_key_heads": 2, "ffn": 100}, 2 + 2 + 4 + 3, 2 * (2 + 7 + 3) + 1),
    ],
)  # fmt: skip
def test_tasks_by_hand(name: str, options: dict[str, Any], count: int, total: int) -> None:
    layout = "NCHW" if len(name) % 2 else "NHWC"
    found, counts = extract_tasks(*testing.get_workload(name, 1, layout, **options), "cuda")
    assert (len(found), sum(counts)) == (count, total)


@pytest.mark.long
def test_every_layout_gives_the_same_number_of_tasks() -> None:
    for name, side in (("squeezenet_v1.1", 64), ("inception_v3", 96), ("densenet-121", 64), ("resnet-18", 64)):
        sizes = []
        for layout in ("NHWC", "NCHW"):
            image = (side, side, 3) if layout == "NHWC" else (3, side, side)
            found, counts = extract_tasks(*testing.get_workload(name, 1, layout, image), "c")
            sizes.append((len(found), sum(counts)))
        assert sizes[0] == sizes[1], name


def test_shortcuts_of_resnet() -> None:
    """A unit that changes the shape has a convolution of its activated input as shortcut; any other, its input."""

    def named(weight: str) -> Call:
        (found,) = (e for e in calls if weight in map(str, e.args))
        return found

    def unit_input(first: Call) -> Expr:
        """What the norm and the relu before a convolution read."""
        relu = first.args[0]
        assert isinstance(relu, Call) and isinstance(relu.args[0], TupleGetItem)
        norm = relu.args[0].tuple_value
        assert isinstance(norm, Call)
        return norm.args[0]

    for depth, last in ((18, 2), (50, 3)):
        net = resnet.get_net(1, 10, depth)
        calls = [e for e in post_order(net.body) if isinstance(e, Call)]
        for stage in "1234":
            first, second = f"%stage{stage}_unit1", f"%stage{stage}_unit2"
            assert named(f"{first}_sc_weight").args[0] is named(f"{first}_conv1_weight").args[0]
            sums = {c.args[0]: c.args[1] for c in calls if c.op.name == "add"}
            assert sums[named(f"{first}_conv{last}_weight")] is named(f"{first}_sc_weight")
            assert sums[named(f"{second}_conv{last}_weight")] is unit_input(named(f"{second}_conv1_weight"))
