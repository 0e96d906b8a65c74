"""Halves in functions that sum up many numbers: computed in float32 and rounded once."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec

from ...computation.tensor import Tensor
from ...expr.dtype import accumulated
from ..elementwise import cast as converted

Given = ParamSpec("Given")


def summed_wide(function: Callable[Given, Tensor]) -> Callable[Given, Tensor]:
    """A function of tensors of the dtype of the first one, whose sums are kept in float32 where they are of halves."""

    @wraps(function)
    def wide(*args: Any, **named: Any) -> Tensor:
        given = [v.dtype for v in (*args, *named.values()) if isinstance(v, Tensor)]
        if not given or given[0] == accumulated(given[0]):
            return function(*args, **named)

        def widened(value: Any) -> Any:
            return converted(value, accumulated(given[0])) if isinstance(value, Tensor) else value

        found = function(*map(widened, args), **{k: widened(v) for k, v in named.items()})
        return converted(found, given[0])

    return wide
