"""Tasks of networks, as their structure tells: an encoder, both layouts, the shortcuts of a residual network."""

from __future__ import annotations

from relay_lite import testing
from relay_lite.compiler.extract import extract_tasks
from relay_lite.ir.nodes import Call, Expr, TupleGetItem
from relay_lite.ir.visit import post_order
from relay_lite.testing import resnet


def test_bert_is_nine_tasks() -> None:
    """A layer: 3 dense, scores, softmax, mixing, 3 more dense, and two norms of two means and a variance."""
    found, counts = extract_tasks(*testing.get_workload("bert-base", num_layers=2), "cuda")
    assert (len(found), sum(counts)) == (9, 2 * (3 + 3 + 3 + 2 * 3))


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
