"""Compiled convolutions of any size, with anything fused to them: their numbers, and which ones are refused."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import te_lite as te
from te_lite import Tensor
from te_lite.errors import TeError
from tests.amount import examples
from tests.nonempty import nonempty
from tests.vta_sim.conv import LAYERS
from tests.vta_sim.packed import Array, Conv, conv_of, divisors
from vta_sim import Config, Device
from vta_sim.compiler import compile_schedule
from vta_sim.compiler.module import build
from vta_sim.core.errors import CompileError
from vta_sim.top import (
    ConvKnobs,
    add,
    as_type,
    at_least,
    at_most,
    broken_rule,
    requantized,
    schedule_conv2d_packed,
    shift_right,
)

CONFIG = Config()


def run(tensors: list[Tensor], knobs: ConvKnobs, arrays: list[Array], seed: int) -> Array:
    """The output of a program on a machine that finds races, its modules taken in random order."""
    device = Device()
    device.finds_races = True
    output = np.full(tensors[-1].shape, -77, np.int8)
    module = build(schedule_conv2d_packed(knobs, tensors[-1]), tensors, device=device)
    module.launch(*arrays, output, rng=np.random.default_rng(seed))
    return output


@st.composite
def convs(draw: st.DrawFn) -> Conv:
    """Small convolutions: rectangular images, kernels, paddings and strides."""
    sizes, pads, strides = st.integers(1, 11), st.integers(0, 2), st.integers(1, 3)
    kernel = (draw(st.integers(1, 4)), draw(st.integers(1, 4)))
    pad = (draw(pads), draw(pads))
    h, w = (max(draw(sizes), kernel[k] - 2 * pad[k]) for k in (0, 1))
    channels = st.integers(1, 4)
    conv = Conv(
        draw(st.integers(1, 2)), h, w, draw(channels), draw(channels), kernel, pad, (draw(strides), draw(strides))
    )
    assume(all(reads_data(conv, side) for side in (0, 1)))
    return conv


def reads_data(conv: Conv, side: int) -> bool:
    """Whether some window reaches over the edge into the image."""
    size, stride = (conv.h, conv.w)[side], conv.stride[side]
    starts = [k * stride - conv.pad[side] for k in range(conv.shape.out[side])]
    return any(start < size and start + conv.kernel[side] > 0 for start in starts)


def space(conv: Conv) -> list[ConvKnobs]:
    """Every configuration of the seven knobs."""
    oh, ow = conv.shape.out
    sizes = [divisors(n) for n in (oh, ow, conv.ci, conv.co)]
    return [ConvKnobs(1, *point) for point in itertools.product(*sizes, (1, 2), (1, 2))]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("turn", range(3))
@examples(40)
@given(st.data())
def test_any_convolution(turn: int, data: st.DataObject) -> None:
    """A valid configuration gives the right numbers, without a race; an invalid one is refused by the compiler too."""
    conv = data.draw(convs())
    knobs = data.draw(st.sampled_from(space(conv)))
    tensors = conv.requantized()
    seed = data.draw(st.integers(0, 2**32 - 1))
    if broken_rule(conv.shape, knobs, CONFIG) is None:
        arrays = list(conv.fill(np.random.default_rng(seed)))
        np.testing.assert_array_equal(run(tensors, knobs, arrays, seed), conv.result(*arrays))
    else:
        assert refused_by_compiler(tensors, knobs)


def refused_by_compiler(tensors: list[Tensor], knobs: ConvKnobs) -> bool:
    """Whether the compiler finds fault with a configuration that nobody looked at before."""
    with patch("vta_sim.top.conv2d.broken_rule", return_value=None):
        schedule = schedule_conv2d_packed(knobs, tensors[-1])
        try:
            compile_schedule(schedule, tensors)
        except TeError:
            return True
        return False


@pytest.mark.long
@examples(80)
@given(st.data())
def test_fused_operators(data: st.DataObject) -> None:
    """Bias, residuals in int8 and int32, shifts, sums and clips in any number."""
    conv = data.draw(convs())
    knobs = data.draw(st.sampled_from([k for k in space(conv) if broken_rule(conv.shape, k, CONFIG) is None]))
    x, w, sums = conv.tensors()
    seed = data.draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    arrays: list[Array] = list(conv.fill(rng))
    expected = conv.sums(*arrays).astype(np.int32)
    value, inputs = sums, [x, w]
    for k, kind in enumerate(data.draw(st.lists(st.sampled_from(OPERATORS), max_size=5))):
        if kind in ("bias", "residual8", "residual32"):
            shape = (1, conv.co, 1, 1, 1, 16) if kind == "bias" else sums.shape
            dtype = "int8" if kind == "residual8" else "int32"
            extra = te.placeholder(shape, name=f"extra{k}", dtype=dtype)
            array = rng.integers(-100, 100, shape).astype(dtype)
            value = add(value, as_type(extra, "int32") if dtype == "int8" else extra)
            expected = expected + array
            inputs.append(extra)
            arrays.append(array)
        else:
            c = data.draw(st.integers(1, 5000)) * data.draw(st.sampled_from((-1, 1)))
            value, expected = ELEMENTWISE[kind](value, expected, c)
    tensors = [*inputs, as_type(value, "int8", "res")]
    try:
        schedule_conv2d_packed(knobs, tensors[-1])
    except CompileError:
        assume(False)
    np.testing.assert_array_equal(run(tensors, knobs, arrays, seed), expected.astype(np.int8))


ELEMENTWISE: dict[str, Callable[[Tensor, Array, int], tuple[Tensor, Array]]] = {
    "shift": lambda x, a, c: (shift_right(x, abs(c) % 20), a >> (abs(c) % 20)),
    "min": lambda x, a, c: (at_most(x, c), np.minimum(a, c)),
    "max": lambda x, a, c: (at_least(x, c), np.maximum(a, c)),
    "plus": lambda x, a, c: (te.compute(x.shape, lambda *i: x(*i) + c, "plus"), a + np.int32(c)),
    "minus": lambda x, a, c: (te.compute(x.shape, lambda *i: x(*i) - c, "minus"), a - np.int32(c)),
    "times": lambda x, a, c: (te.compute(x.shape, lambda *i: x(*i) * c, "times"), a * np.int32(c)),
    "up": lambda x, a, c: (te.compute(x.shape, lambda *i: x(*i) * 8, "up"), a << 3),
    "wrap": lambda x, a, c: (as_type(as_type(x, "int8"), "int32"), a.astype(np.int8).astype(np.int32)),
    "clip": lambda x, a, c: (
        te.compute(x.shape, lambda *i: te.maximum(te.minimum(x(*i) + 1, 127), -127), "clip"),
        np.clip(a + np.int32(1), -127, 127),
    ),
}
OPERATORS = (*ELEMENTWISE, "bias", "residual8", "residual32")


def test_residual_is_computed_in_place() -> None:
    """One ALU instruction a tile and operation, and twice the accumulators."""
    conv = Conv(1, 8, 8, 1, 2, (3, 3), (1, 1), (1, 1))
    x, w, sums = conv.tensors()
    residual = te.placeholder(sums.shape, name="residual", dtype="int8")
    tensors = [x, w, residual, requantized(add(sums, as_type(residual, "int32")))]
    rng = np.random.default_rng(3)
    arrays = [*conv.fill(rng), rng.integers(-128, 128, sums.shape, dtype=np.int8)]
    expected = np.clip((conv.sums(*arrays[:2]) + arrays[2]) >> 8, 0, 127).astype(np.int8)
    np.testing.assert_array_equal(run(tensors, ConvKnobs(1, 8, 8, 1, 2), arrays, 0), expected)
    output = np.zeros_like(expected)
    module = build(schedule_conv2d_packed(ConvKnobs(1, 8, 8, 1, 2), tensors[-1]), tensors)
    launch = module.launch(*arrays, output)
    assert launch.counters.alu_counter == 4 * 2 * 64
    assert launch.counters.acc_load_nbytes == 2 * 64 * 64
    assert len(launch.order) == 22  # accumulators are loaded by the module that computes: no tokens for that
    big = Conv(1, 32, 64, 1, 1, (1, 1), (0, 0), (1, 1))
    x, w, sums = big.tensors()
    schedule_conv2d_packed(ConvKnobs(1, 32, 64), requantized(sums))
    residual = te.placeholder(sums.shape, name="residual", dtype="int8")
    with pytest.raises(CompileError, match="the tile in ACC must fit its 2048 elements, got 4096 elements times 1"):
        schedule_conv2d_packed(ConvKnobs(1, 32, 64), requantized(add(sums, as_type(residual, "int32"))))


def test_narrowing() -> None:
    """Two shifts where the result is used again; nothing where it is stored, since a store narrows anyway."""
    conv = Conv(1, 4, 4, 1, 2, (1, 1), (0, 0), (1, 1))
    x, w, sums = conv.tensors()
    arrays = list(conv.fill(np.random.default_rng(4)))
    halves = shift_right(as_type(as_type(sums, "int8"), "int32"), 1)
    expected = conv.sums(*arrays).astype(np.int8) >> 1
    used = [x, w, as_type(halves, "int8", "res")]
    np.testing.assert_array_equal(run(used, ConvKnobs(1, 4, 4, 1, 2), arrays, 0), expected)
    stored = [x, w, te.compute(sums.shape, lambda *i: (sums(*i) + 1).astype("int8"), "res")]
    np.testing.assert_array_equal(
        run(stored, ConvKnobs(1, 4, 4, 1, 2), arrays, 0), (conv.sums(*arrays) + 1).astype(np.int8)
    )
    for tensors, operations in ((used, 3), (stored, 1)):
        module = build(schedule_conv2d_packed(ConvKnobs(1, 4, 4, 1, 2), tensors[-1]), tensors)
        assert module.launch(*arrays, np.zeros_like(expected)).counters.alu_counter == operations * 32


# the first rule that is broken: capacity, division, inputs, outputs, hazard; and the valid ones
PUBLISHED = {
    "C2": (449, 412, 922, 222, 84, 215),
    "C3": (445, 260, 633, 172, 60, 158),
    "C4": (328, 325, 517, 172, 0, 386),
    "C5": (468, 368, 1064, 173, 60, 171),
    "C6": (369, 212, 487, 63, 30, 119),
    "C7": (190, 319, 343, 63, 0, 365),
    "C8": (503, 263, 622, 63, 30, 119),
    "C9": (188, 128, 120, 0, 4, 40),
    "C10": (61, 215, 72, 0, 0, 132),
    "C11": (258, 139, 135, 0, 4, 40),
}
RULES = ("capacity", "division", "inputs", "outputs", "hazard", "valid")


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.one_in(7)
def test_valid_configurations_of_the_ten_layers(name: str) -> None:
    """As many configurations break each rule as was published, and the compiler agrees about a sample of them."""
    conv = conv_of(LAYERS[name])
    points = space(conv)
    broken = [broken_rule(conv.shape, k, CONFIG) for k in points]
    names = ["valid" if rule is None else rule[0] for rule in broken]
    assert tuple(names.count(rule) for rule in RULES) == PUBLISHED[name] and len(points) == sum(PUBLISHED[name])
    tensors = conv.requantized()
    for k in np.random.default_rng(5).permutation(len(points))[:20]:
        assert refused_by_compiler(tensors, points[k]) == (broken[k] is not None)


def test_reasons_are_sentences() -> None:
    conv = conv_of(LAYERS["C2"])
    output = conv.requantized()[-1]
    for knobs, reason in (
        (ConvKnobs(1, 56, 56), "the tile in INP must fit its 2048 elements, got 3364 elements times 1 virtual"),
        (ConvKnobs(1, 4, 56, 1, 4, 2), "oc_nthread must divide the 1 tiles, got 2"),
        (ConvKnobs(1, 8, 14, 2), "the tile of inputs must be evenly spaced rows of one plane, got tile_ci=2"),
        (ConvKnobs(1, 8, 28, 1, 2), "the tile of outputs must be evenly spaced rows, got"),
        (ConvKnobs(1, 1, 56, 1, 2), "a micro-op may not write an accumulator that one of the two before it wrote"),
        (ConvKnobs(1, 3), "tile_h must divide 56, got 3"),
    ):
        with pytest.raises(CompileError, match=reason):
            schedule_conv2d_packed(knobs, output)


def test_windows_that_are_all_padding() -> None:
    """Tiles above, below, and beside the image, in every valid configuration."""
    conv = Conv(1, 3, 4, 1, 1, (2, 2), (2, 3), (1, 1))
    rng = np.random.default_rng(8)
    arrays = list(conv.fill(rng))
    expected = conv.result(*arrays)
    for k in nonempty(k for k in space(conv) if broken_rule(conv.shape, k, CONFIG) is None):
        np.testing.assert_array_equal(run(conv.requantized(), k, arrays, 0), expected)


def test_nothing_but_padding() -> None:
    """A convolution that never meets its image has no program."""
    tensors = Conv(1, 1, 1, 1, 1, (1, 1), (0, 1), (1, 3)).requantized()
    with pytest.raises(CompileError, match="all that is read lies outside of the tensor"):
        compile_schedule(schedule_conv2d_packed(ConvKnobs(), tensors[-1]), tensors)
