"""The kinds of operations, as marks on stages."""

from __future__ import annotations

ELEMWISE = "elemwise"
BROADCAST = "broadcast"
INJECTIVE = "injective"
COMM_REDUCE = "comm_reduce"
COMM_REDUCE_IDX = "comm_reduce_idx"


def is_injective(tag: str) -> bool:
    """Each output element reads single elements: the stage may be inlined."""
    return tag in (ELEMWISE, BROADCAST, INJECTIVE)
