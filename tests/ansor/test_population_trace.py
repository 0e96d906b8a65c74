"""A program replayed from a trace gives bit for bit what the function gives, and refuses what it cannot write down."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ansor.space.trace import CompiledTrace, Symbol, Trace, recorded

UNARY = (np.ceil, np.floor, np.abs, np.negative, np.sqrt)
BINARY = (np.add, np.subtract, np.multiply, np.divide, np.minimum, np.maximum, np.fmod)
NUMBERS = (0.0, -0.0, 1, 1.0, 2, 0.5, True, np.float64(3), np.int64(2), 0.1, np.nextafter(0.1, 1))


@recorded
def largest(rows: tuple[int, ...], *values: Any) -> Any:
    """The largest of the values `rows`, and how many lanes there are."""
    return np.maximum.reduce([values[k] for k in rows]) + len(values[0])


def random_function(seed: int) -> Callable[..., list[Any]]:
    """A function of two float and one int array that makes the same random choices at each call."""

    def function(a: Any, b: Any, k: Any) -> list[Any]:
        rng = np.random.default_rng(seed)
        found = [a, b, k * 1, k * 1.0, k % 3, -(-k // 4), abs(b - a)]

        def some() -> Any:
            return NUMBERS[rng.integers(len(NUMBERS))] if rng.random() < 0.3 else lanes()

        def lanes() -> Any:
            return found[rng.integers(len(found))]

        for _ in range(120):
            match rng.integers(6):
                case 0:
                    found.append(UNARY[rng.integers(4)](lanes()))
                case 1:
                    found.append(np.where((lanes() > some()) & True, some(), lanes()))
                case 2:
                    rows = tuple(rng.integers(0, 3, 2).tolist())
                    found.append(largest(rows, lanes(), lanes(), lanes()))
                case 3:
                    found.append(some() * lanes() + ~(lanes() <= some()))
                case _:
                    args = (some(), lanes()) if rng.random() < 0.5 else (lanes(), some())
                    found.append(BINARY[rng.integers(len(BINARY))](*args))
        return found[5::9]

    return function


def record(function: Callable[..., list[Any]], *samples: Any) -> CompiledTrace:
    trace = Trace()
    found = function(*[trace.input(x) for x in samples])
    assert all(isinstance(x, Symbol) for x in found)
    return CompiledTrace(trace, found)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_played_is_called(seed: int) -> None:
    rng = np.random.default_rng(seed)
    function = random_function(seed)
    program = record(function, np.ones(1), np.ones(1), np.ones(1, np.int64))
    for n in (1, 2, 37):
        a, b, k = rng.normal(size=n) * 9, rng.normal(size=n), rng.integers(0, 50, n)
        kept = [x.copy() for x in (a, b, k)]
        found, wanted = program([a, b, k]), function(a, b, k)
        for x, y in zip(found, wanted, strict=True):
            assert x.dtype == y.dtype and x.shape == (n,)
            assert np.array_equal(x, y, equal_nan=True) and (np.signbit(x) == np.signbit(y))[x == x].all()
        assert all(np.array_equal(x, y) for x, y in zip(kept, (a, b, k), strict=True))


def test_nothing_is_done_twice_or_in_vain() -> None:
    calls = []

    @recorded
    def noted(x: Any, name: str) -> Any:
        calls.append(name)
        return x + 1

    def function(a: Any, b: Any) -> list[Any]:
        noted(a, "in vain")
        return [noted(a, "once") * noted(b, "other") + 1.0 * noted(a, "once"), noted(b + a, "sum"), noted(a + b, "sum")]

    program = record(function, np.ones(1), np.ones(1))
    calls.clear()
    first, second, third = program([np.array([1.0, 2.0]), np.array([3.0, 5.0])])
    assert sorted(calls) == ["once", "other", "sum"]
    assert first.tolist() == [10, 21] and second.tolist() == third.tolist() == [5, 8]


def test_constants_that_are_equal_but_not_the_same() -> None:
    """Index lists [1, 0] and masks [True, False]; zeros with and without a minus."""

    @recorded
    def rows(x: Any, which: tuple[Any, ...]) -> Any:
        return np.stack([x, 2 * x])[list(which)].sum(axis=0)

    def function(a: Any) -> list[Any]:
        return [rows(a, (1, 0)), rows(a, (True, False)), np.copysign(a, 0.0), np.copysign(a, -0.0), a * 2, a * 2.0]

    found = record(function, np.ones(1, np.int64))([np.array([5, 7])])
    assert [x.tolist() for x in found] == [[15, 21], [5, 7], [5, 7], [-5, -7], [10, 14], [10, 14]]
    assert [x.dtype.kind for x in found] == list("iiffif")


def test_constants_with_rows_that_all_lanes_have() -> None:
    """Equal ones are one constant; what leaves another operand as it is does so as a number only."""

    def function(a: Any) -> list[Any]:
        rows = np.array([[1.0], [2.0]])
        return [a * rows, rows.copy() * a, a * np.ones((2, 1)), a + rows[:1]]

    found = record(function, np.ones(1))([np.array([5.0, 7.0])])
    assert [x.tolist() for x in found] == [[[5, 7], [10, 14]], [[5, 7], [10, 14]], [[5, 7], [5, 7]], [[6, 8]]]


def test_what_cannot_be_recorded() -> None:
    trace = Trace()
    x = trace.input(np.ones(1))
    with pytest.raises(TypeError, match="truth"):
        assert x > 0
    with pytest.raises(TypeError, match="elements"):
        np.asarray(x)
    with pytest.raises(TypeError, match=r"no place on a trace.*\(2,\)"):
        x + np.ones(2)
    with pytest.raises(TypeError, match=r"no place on a trace.*\(1, 2\)"):
        x * np.ones((1, 2))
    with pytest.raises(TypeError, match=r"maximum: only plain calls.*reduce"):
        np.maximum.reduce(x)
    with pytest.raises(TypeError, match=r"add: only plain calls.*out"):
        np.add(x, 1, out=np.ones(1))
    with pytest.raises(TypeError, match=r"sum: only plain calls.*axis"):
        np.sum(x, axis=0)
    with pytest.raises(ValueError, match="1 inputs are needed, got 2"):
        CompiledTrace(trace, [x * 2])([np.ones(3), np.ones(3)])
