"""Numbers beside float16 and bfloat16: rounded for sums and comparisons, as they are for products, as in PyTorch."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest

from tests.nonempty import nonempty

torch = pytest.importorskip("torch")
pytest.importorskip("relay_lite.pytorch")
pytestmark = pytest.mark.torch

NUMBERS = (0.1, 0.7003, 1 / 3, 1.0009765, 3.1415926, 1e-8, 1e6)
EXACT: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add, "sub": operator.sub, "rsub": lambda a, s: s - a, "mul": operator.mul,
    "div": operator.truediv, "lt": operator.lt, "ge": operator.ge, "eq": operator.eq, "ne": operator.ne,
    "floor": lambda a, s: torch.div(a, s, rounding_mode="floor"),
    "trunc": lambda a, s: torch.div(a, s, rounding_mode="trunc"),
    "fmod": torch.fmod, "remainder": torch.remainder,
}  # fmt: skip


@pytest.mark.usefixtures("compiled_whole")
@pytest.mark.parametrize("tensor", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_numbers_beside_small_floats(dtype: Any, tensor: bool) -> None:
    """The very bits, of numbers and of tensors without axes."""
    generator = torch.Generator().manual_seed(1)
    a = (torch.randn(512, generator=generator) * 3).to(dtype)
    a[:7] = torch.tensor(NUMBERS).to(dtype)
    numbers = [torch.tensor(s) for s in NUMBERS] if tensor else NUMBERS
    cases = [(name, k) for name in EXACT for k in range(len(NUMBERS))]

    def apply(a: Any, *given: Any) -> list[Any]:
        return [EXACT[name](a, given[k] if tensor else NUMBERS[k]) for name, k in cases]

    torch._dynamo.reset()
    given = numbers if tensor else ()
    found = torch.compile(apply, backend="ansor")(a, *given)
    for (name, k), got, want in nonempty(zip(cases, found, apply(a, *given), strict=True)):
        same = (got == want) | ((got != got) & (want != want))
        what = f"{name} {NUMBERS[k]}: {got[~same][:4]}, wanted {want[~same][:4]} of {a[~same][:4]}"
        assert got.dtype == want.dtype and bool(same.all()), what
