"""Operators of two tensors and operators that make tensors."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import relay_lite as relay
from tests.amount import examples
from tests.relay_lite.op_case import check

ARITHMETIC = ("add", "subtract", "multiply", "maximum", "minimum")
DIVISIONS = ("divide", "floor_divide", "mod", "floor_mod")
COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
LOGIC = ("logical_and", "logical_or", "logical_xor")

PRIMES = st.sampled_from([1, 2, 3, 5])


@st.composite
def broadcasting(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """Two shapes that fit together."""
    whole = draw(st.lists(PRIMES, max_size=4))
    shapes = []
    for _ in range(2):
        kept = draw(st.integers(0, len(whole)))
        shapes.append([1 if draw(st.booleans()) else n for n in whole[len(whole) - kept :]])
    return shapes[0], shapes[1]


@pytest.mark.parametrize("name", ARITHMETIC + COMPARISONS)
@given(shapes=broadcasting(), dtype=st.sampled_from(["float32", "int32", "int64"]))
@examples(8)
def test_broadcasting(name: str, shapes: tuple[list[int], list[int]], dtype: str) -> None:
    a, b = (relay.var(n, s, dtype) for n, s in zip("ab", shapes, strict=True))
    (got,) = check(getattr(relay, name)(a, b))
    assert got.shape == np.broadcast_shapes(*map(tuple, shapes))


@pytest.mark.parametrize("name", DIVISIONS)
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_divisions_of_both_signs(name: str, dtype: str) -> None:
    a = np.array([-7, -7, 7, 7, 6, -6, 1, 0], dtype)
    b = np.array([2, -2, 2, -2, 3, 3, 5, -5], dtype)
    x, y = relay.var("x", (8,), dtype), relay.var("y", (8,), dtype)
    (got,) = check(getattr(relay, name)(x, y), {"x": a, "y": b})
    exact = a / b
    quotient = {"divide": np.trunc(exact) if dtype == "int32" else exact, "floor_divide": np.floor(exact)}
    rest = {"mod": np.fmod(a, b), "floor_mod": np.mod(a, b)}
    np.testing.assert_allclose(got, (quotient | rest)[name], rtol=1e-6)


def test_power() -> None:
    check(relay.power(relay.var("a", (3, 5)), relay.var("b", (5,))), low=0.2, high=3)


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64"])
def test_power_of_integers(dtype: str) -> None:
    """Quotients of negative exponents lose their fractions, that by 0 is 0."""
    cases = {(2, 6): 64, (-3, 3): -27, (5, 0): 1, (7, -2): 0, (0, 0): 1, (1, -3): 1, (-1, -3): -1, (-1, -2): 1,
             (0, -1): 0, (2, -1): 0}  # fmt: skip
    a, b = np.array([*cases], dtype).T
    (got,) = check(relay.power(*[relay.var(n, a.shape, dtype) for n in "ab"]), {"a": a, "b": b})
    np.testing.assert_array_equal(got, [*cases.values()])


@pytest.mark.parametrize("name", ["bitwise_and", "bitwise_or", "bitwise_xor"])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64"])
def test_bits(name: str, dtype: str) -> None:
    check(getattr(relay, name)(relay.var("a", (3, 5), dtype), relay.var("b", (5,), dtype)))


@pytest.mark.parametrize("name", LOGIC)
def test_logic(name: str) -> None:
    check(getattr(relay, name)(relay.var("a", (3, 5), "bool"), relay.var("b", (3, 1), "bool")))


@given(shapes=broadcasting(), other=st.booleans())
@examples(20)
def test_where(shapes: tuple[list[int], list[int]], other: bool) -> None:
    a, b = shapes
    call = relay.where(relay.var("c", b if other else a, "bool"), relay.var("x", a), relay.var("y", b))
    check(call)


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -2, -3])
def test_bias_and_prelu(axis: int) -> None:
    shape = (2, 3, 5)
    x, v = relay.var("x", shape), relay.var("v", (shape[axis],))
    check(relay.nn.bias_add(x, v, axis))
    check(relay.nn.prelu(x, v, axis))


def test_numbers_take_the_dtype_of_the_other_side() -> None:
    x = relay.var("x", (2,), "int64")
    assert (x + 1).dtype == "int64" and (2 * relay.var("y", (2,), "float16")).dtype == "float16"
    y = relay.var("y", (2, 3))
    for call, want in ((1.0 - y, "subtract"), (y / 2, "divide"), (-y, "negative"), (1 + y, "add"), (y * y, "multiply")):
        assert call.op.name == want and call.shape == (2, 3)
    values = {"y": np.array([[1, 2, 4], [5, 8, 16]], "float32")}
    (got,) = check(1.0 / y, values)
    np.testing.assert_allclose(got, 1 / values["y"], rtol=1e-6)


# ------------------------------------------------------------------------------------- making tensors


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool"])
def test_zeros_ones_full(dtype: str) -> None:
    x = relay.var("x", (2, 3), dtype)
    for call, value in (
        (relay.zeros((2, 3), dtype), 0),
        (relay.ones((2, 3), dtype), 1),
        (relay.zeros_like(x), 0),
        (relay.ones_like(x), 1),
        (relay.full(relay.const(1, "int32"), (2, 3), dtype), 1),
        (relay.full_like(x, 1), 1),
    ):
        (got,) = check(call)
        np.testing.assert_array_equal(got, np.full((2, 3), value, dtype))


@pytest.mark.parametrize(
    ("arguments", "dtype"),
    [((5,), "int32"), ((2, 9, 3), "int64"), ((0.5, 3.0, 0.5), "float32"), ((7, 0, -2), "int32"), ((3, 3.5), "float32")],
)
def test_arange(arguments: tuple[float, ...], dtype: str) -> None:
    (got,) = check(relay.arange(*arguments, dtype=dtype))
    np.testing.assert_allclose(got, np.arange(*arguments).astype(dtype))


@pytest.mark.parametrize("axis", [-1, 0, 1, 2, -2])
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_one_hot(axis: int, dtype: str) -> None:
    where = np.array([[0, 3, 2], [4, 1, 7]], "int32")
    on, off = relay.const(2, dtype), relay.const(-1, dtype)
    (got,) = check(relay.one_hot(relay.var("i", (2, 3), "int32"), on, off, 5, axis, dtype), {"i": where})
    hot = np.moveaxis(np.where(where[..., None] == np.arange(5), 2, -1), -1, axis)
    np.testing.assert_array_equal(got, hot)
