"""What products in the fragments of tensor cores cost: nothing, where a kernel has none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from te_lite.extensions import part

from .loop_nests import Nest
from .machine import GPU


@dataclass(frozen=True)
class FragmentCosts:
    """What products in the fragments of tensor cores cost a block: bytes of shared memory beside the tiles, registers
    of a thread, cycles that nothing else can use, and cycles that a block waits alone; `apart` are the scopes whose
    nests cost nothing else."""

    shared: Any = 0
    registers: Any = 0
    busy: Any = 0.0
    alone: Any = 0.0
    apart: tuple[str, ...] = ()


def fragment_costs(nests: Sequence[Nest], machine: GPU) -> FragmentCosts:
    """Those of the nests of a kernel, as the extension that has such products knows them."""
    costs = part("fragment_costs") if any(nest.scope == "fragment" for nest in nests) else None
    return FragmentCosts() if costs is None else costs(nests, machine)
