"""Halves in functions that sum up many numbers: computed in float32 and rounded once."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, cast

from ...computation.tensor import Tensor
from ...expr.dtype import accumulated
from ..elementwise import cast as converted

More = ParamSpec("More")


def summed_wide(function: Callable[Concatenate[Tensor, More], Tensor]) -> Callable[Concatenate[Tensor, More], Tensor]:
    """A function of a tensor, and of others of its dtype, whose sums are kept in float32 where they are of halves."""

    @wraps(function)
    def wide(data: Tensor, /, *args: More.args, **named: More.kwargs) -> Tensor:
        dtype = accumulated(data.dtype)
        if dtype == data.dtype:
            return function(data, *args, **named)

        def widened(value: object) -> object:
            return converted(value, dtype) if isinstance(value, Tensor) else value

        more = cast("Callable[..., Tensor]", function)
        found = more(converted(data, dtype), *map(widened, args), **{k: widened(v) for k, v in named.items()})
        return converted(found, data.dtype)

    return wide
