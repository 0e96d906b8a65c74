"""The tasks of a network: the counts, the weights and the work that were measured on TVM 0.14 (spec, section 3.1)."""

from __future__ import annotations

import pytest

from relay_lite import testing
from relay_lite.extract import extract_tasks
from relay_lite.ir import Call, Expr, TupleGetItem, post_order
from relay_lite.testing import resnet


@pytest.mark.parametrize(
    ("name", "layout", "tasks", "weights", "work"),
    [
        ("resnet-50", "NHWC", 29, 57, 6.042),
        ("mobilenet", "NCHW", 22, 30, 1.148),
        ("inception_v3", "NCHW", 56, 110, 11.471),
        ("resnet3d-18", "NHWC", 23, 24, 81.87),
        ("resnet3d-18", "NCHW", 23, 24, None),
        ("dcgan", "NCHW", 5, 5, 3.276),
        ("vgg-16", "NCHW", 18, 22, 30.97),
        ("densenet-121", "NCHW", 22, 126, 3.537),
    ],
)
def test_measured_figures(name: str, layout: str, tasks: int, weights: int, work: float | None) -> None:
    found, counts = extract_tasks(*testing.get_workload(name, layout=layout), "cuda")
    assert (len(found), sum(counts)) == (tasks, weights)
    if work is None:
        return
    total = sum(count * max(task.compute_dag.flop_ct, 0) for task, count in zip(found, counts, strict=True))
    digits = len(str(work).split(".")[1])
    assert total / 1e9 == pytest.approx(work, abs=0.51 * 10**-digits)


def test_bert_is_nine_tasks() -> None:
    """A layer: 3 dense, scores, softmax, mixing, 3 more dense, and two norms of a mean and a variance."""
    found, counts = extract_tasks(*testing.get_workload("bert-base", num_layers=2), "cuda")
    assert (len(found), sum(counts)) == (9, 2 * (3 + 3 + 3 + 2 * 2))


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
