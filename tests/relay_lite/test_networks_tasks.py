"""Tasks of networks, as their structure tells: an encoder, both layouts, the shortcuts of a residual network."""

from __future__ import annotations

from typing import Any

import pytest

from relay_lite import testing
from relay_lite.compiler.extract import extract_tasks
from relay_lite.ir.nodes import Call, Expr, TupleGetItem
from relay_lite.ir.visit import post_order
from relay_lite.testing import resnet


@pytest.mark.parametrize("target", ["c", "cuda"])
def test_tasks_of_bert(target: str) -> None:
    """A layer: 3 dense, scores, softmax, mixing, 3 more dense, and two norms, a row program each."""
    found, counts = extract_tasks(*testing.get_workload("bert-base", num_layers=2), target)
    assert (len(found), sum(counts)) == (8, 2 * (3 + 3 + 3 + 2))


LONG, SLOW = pytest.mark.long, pytest.mark.slow
VISION = {"hidden": 48, "num_heads": 3, "num_layers": 2}
WORDS = {**VISION, "seq_len": 16, "vocab_size": 50}


@pytest.mark.parametrize(
    ("name", "options", "count", "total"),
    [
        # The stem, 17 blocks of 3 (the first of 2), the last convolution, the pool, the dense layer.  Blocks of a
        # stage are alike from the second on (9 in all), and the first one of a stage widens as those before it do.
        # Stage by stage (its first block, its others): 1 + 2 + (3 + 3) + (2 + 3) + (2 + 3) + (1 + 3) + (2 + 3) + 1 + 3.
        pytest.param("mobilenet_v2", {}, 32, 1 + 2 + 16 * 3 + 3, marks=LONG),
        # The stem, 15 blocks of 3 (the first of 2), 8 of which squeeze (3 more), the last convolution, the pool, two
        # dense layers.  Not new are: the widening of block 4; blocks 6 and 15; block 10; the widening and squeezing
        # of block 13 (not its pool, whose image is smaller); the last convolution and pool, which are those of block
        # 15: 1 + 6 + 6 + 3 + 3 + 2.
        pytest.param("mobilenet_v3_large", {}, 73 - 21, 1 + 2 + 14 * 3 + 8 * 3 + 4, marks=SLOW),
        # 11 blocks, of which 9 squeeze.  Not new are blocks 6 and 11, the last convolution and its pool: 6 + 6 + 2.
        pytest.param("mobilenet_v3_small", {}, 64 - 14, 1 + 2 + 10 * 3 + 9 * 3 + 4, marks=SLOW),
        # The stem, 16 blocks of 6 (the first of 5), the last convolution, the pool, the dense layer.  The first block
        # of a stage widens and squeezes as those before it do: filter, pool and narrowing are new (the pool only where
        # the image shrinks), in the other blocks of a stage all 6, once: 5 + 6 + 6 + 3 + 6 + 3 + 6 + 2 + 6 + 3 + 6 + 2.
        pytest.param("efficientnet_b0", {}, 58, 1 + 5 + 15 * 6 + 3, marks=SLOW),
        # A norm is a mean, a mean and a variance.  The stem, 23 norms (18 blocks, one after the stem, 3 between stages,
        # the last), 3 convolutions between stages, 18 blocks of 3, the pool, the dense layer; norms of 4 images and of
        # the pool, 4 kinds of blocks.  The norm of the pool is one of rows, and one kernel.
        pytest.param("convnext_tiny", {}, 1 + 4 * 2 + 1 + 3 + 4 * 3 + 2, 1 + 22 * 3 + 1 + 3 + 18 * 3 + 2, marks=LONG),
        # Patches; a layer: two norms, packed product, scores, softmax, mixing, product, two dense; the norm; the head.
        pytest.param("vit_b_16", VISION, 1 + 1 + 7 + 1, 1 + 2 * (2 + 7) + 1 + 1, marks=LONG),
        # Patches and their norm; 12 layers as above; 3 times a norm and a product where the image shrinks; the norm,
        # the mean, the head.  Of the 4 stages, 3 have scores with and without a mask, and packed products that read
        # windows of the image or those of a shifted one; the last image is one window.
        pytest.param("swin_t", {"hidden": 12}, 1 + 4 * 8 + 6 + 3 * 2 + 2, 1 + 1 + 12 * 9 + 3 * 2 + 1 + 2, marks=LONG),
        ("gpt2", WORDS, 1 + 7, 2 * (2 + 7) + 1),
        # A norm is one kernel; the last one computes the sum that it reads, too, which nobody else does.  A layer: two
        # norms, query, key and value (two shapes), scores, softmax, mixing, product, gate, up, down; gate and up differ
        # in what follows them.
        ("llama-135m", {**WORDS, "num_heads": 6, "num_key_heads": 2, "ffn": 100}, 2 + 2 + 4 + 3, 2 * (2 + 7 + 3) + 1),
        # A layer: two norms, query, key and value (one shape), scores, softmax, mixing, product, two dense.
        ("t5-small-encoder", {**WORDS, "ffn": 100}, 2 + 1 + 4 + 2, 2 * (2 + 7 + 2) + 1),
        # Two convolutions; a layer: two norms, query, key and value (the key without bias), scores, softmax, mixing,
        # product, two dense; the norm.
        ("whisper-tiny-encoder", {"frames": 32, **VISION}, 2 + 1 + 2 + 4 + 2, 2 + 2 * (2 + 7 + 2) + 1),
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
