"""How large what comes from outside may be: said from shapes and dtypes, in Python's integers, before any memory is.

The largest tensor has `ANSOR_TENSOR_BYTES` bytes; everything else is a share of that, so that who raises the one
raises all.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from te_lite import environment
from te_lite.errors import require

from ..errors import GraphError

AXES = 32
"""The axes that a tensor may have: what NumPy has had for most of its life."""
_COMPUTED, _IMPORTED, _NETWORK = 1 / 16, 1 / 4, 16


def tensor_limit() -> int:
    """The bytes that one tensor may have."""
    return environment.ANSOR_TENSOR_BYTES.positive or int(environment.ANSOR_TENSOR_BYTES.default)


def computed_limit() -> int:
    """The bytes that one constant may have that is computed while a graph is read or rewritten."""
    return int(tensor_limit() * _COMPUTED)


def imported_limit() -> int:
    """The bytes that all constants may have together that are computed while a graph is read."""
    return int(tensor_limit() * _IMPORTED)


def network_limit() -> int:
    """The bytes that all memory of a network may have together."""
    return tensor_limit() * _NETWORK


def nbytes(shape: Sequence[int], dtype: str) -> int:
    """The bytes of a tensor; an extent of 0 counts as 1, for NumPy needs the others to be of a size, too."""
    return prod(max(d, 1) for d in shape) * np.dtype(dtype).itemsize


def require_tensor(shape: Sequence[int], dtype: str, subject: str) -> None:
    """Refuse a tensor of too many axes or bytes.  Raises GraphError."""
    require(len(shape) <= AXES, GraphError, subject, f"it may have at most {AXES} axes", axes=len(shape))
    limit = tensor_limit()
    law = f"it may have at most {limit} bytes (ANSOR_TENSOR_BYTES)"
    require(nbytes(shape, dtype) <= limit, GraphError, subject, law, shape=tuple(shape), dtype=dtype)


def require_computed(shape: Sequence[int], dtype: str, subject: str) -> None:
    """Refuse to compute an array of so many bytes before the network runs.  Raises GraphError."""
    limit = computed_limit()
    law = f"what is computed before the network runs may have {limit} bytes, 1/16 of ANSOR_TENSOR_BYTES"
    require(nbytes(shape, dtype) <= limit, GraphError, subject, law, shape=tuple(shape), dtype=dtype)
