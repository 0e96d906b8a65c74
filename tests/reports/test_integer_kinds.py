"""Numbers that a tensor's dtype cannot hold, and integers of two kinds: as PyTorch promotes them, or left to it."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from typing import Any

import pytest

from tests.nonempty import nonempty

torch = pytest.importorskip("torch")
pytest.importorskip("relay_lite.pytorch")
pytestmark = pytest.mark.torch

KINDS = {"uint8": torch.uint8, "int8": torch.int8, "int16": torch.int16, "int32": torch.int32, "int64": torch.int64}
NUMBERS = (-1, 200, 0xFFF, 2**31, 2**40 + 3)
ANY: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add, "sub": operator.sub, "rsub": lambda a, b: b - a, "mul": operator.mul, "lt": operator.lt,
    "le": operator.le, "gt": operator.gt, "ge": operator.ge, "eq": operator.eq, "ne": operator.ne,
    "and": operator.and_, "or": operator.or_, "xor": operator.xor,
    "alpha": lambda a, b: torch.add(a, a, alpha=b) if isinstance(b, int) else torch.add(a, b, alpha=300),
}  # fmt: skip
DIVISIONS: dict[str, Callable[[Any, Any], Any]] = {
    "floor": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "remainder": torch.remainder, "fmod": torch.fmod, "true": operator.truediv,
}  # fmt: skip


def drawn(kind: str, seed: int, count: int = 16) -> Any:
    """Small numbers and the ends of the dtype."""
    generator = torch.Generator().manual_seed(seed)
    ends = torch.iinfo(KINDS[kind])
    some = torch.randint(max(ends.min, -8), 9, (count,), generator=generator)
    some[:4] = torch.tensor([ends.min, ends.max, 1, ends.max - 1])
    return some.to(KINDS[kind])


def usable(f: Callable[[Any, Any], Any], a: Any, b: Any) -> bool:
    """Whether PyTorch itself computes it."""
    try:
        f(a, b)
    except (RuntimeError, ZeroDivisionError):
        return False
    return True


def compared(functions: dict[str, Callable[[Any, Any], Any]], pairs: list[tuple[Any, Any]], numbers: bool) -> None:
    """All in one graph: dtypes and values are PyTorch's."""
    chosen = [(n, k) for n, k in itertools.product(functions, range(len(pairs))) if usable(functions[n], *pairs[k])]

    def apply(*tensors: Any) -> Any:
        return [functions[n](tensors[k], pairs[k][1] if numbers else tensors[len(pairs) + k]) for n, k in chosen]

    given = [a for a, _ in pairs] + ([] if numbers else [b for _, b in pairs])
    torch._dynamo.reset()
    found = torch.compile(apply, backend="ansor")(*given)
    for (name, k), got, want in nonempty(zip(chosen, found, apply(*given), strict=True)):
        what = f"{name} {pairs[k]}: {got}, wanted {want}"
        assert got.dtype == want.dtype and torch.allclose(got, want, 1e-6, 0), what


@pytest.mark.usefixtures("compiled_whole")
@pytest.mark.parametrize("kind", KINDS)
def test_numbers_that_do_not_fit(kind: str) -> None:
    """As PyTorch does, they wrap around to the dtype of the tensor, in comparisons, too."""
    compared(ANY, [(drawn(kind, k), number) for k, number in enumerate(NUMBERS)], numbers=True)
    small = [(drawn(kind, k)[4:], number) for k, number in enumerate(NUMBERS)]
    compared(DIVISIONS, small, numbers=True)  # PyTorch ends where the lowest number is divided by -1


@pytest.mark.parametrize("scalar", [False, True])
def test_two_kinds_of_integers(scalar: bool) -> None:
    """Of two tensors the common dtype decides; one without axes counts by its kind alone."""
    pairs = [(drawn(a, 1), drawn(b, 2)) for a, b in itertools.permutations(KINDS, 2)]
    pairs = [(a, b[1]) if scalar else (a, b) for a, b in pairs]
    compared(ANY, pairs, numbers=False)


def test_inverted_bits() -> None:
    compared({"not": lambda a, b: ~a}, [(drawn(kind, 3), 0) for kind in KINDS], numbers=True)


def test_what_pytorch_refuses_is_its_own_error() -> None:
    """A node that cannot be imported stays in PyTorch, which says what is wrong."""
    x = torch.arange(4, dtype=torch.uint8)
    torch._dynamo.reset()
    with pytest.raises(RuntimeError, match="without overflow"):
        torch.compile(lambda t: torch.nn.functional.pad(t, (1, 1), value=-1) + t[0], backend="ansor")(x)
