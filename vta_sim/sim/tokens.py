"""The dependency graph of tokens, and an order in which a program can run.

Every module works through its own instructions in order, and every token queue has one module that gives and one that
takes.  So the k-th instruction that pops a queue waits for the k-th that pushes it, whatever else happens: the tokens
of a program are a graph that can be drawn before anything runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from te_lite.errors import require

from ..core.errors import DeadlockError, MachineError
from ..core.kinds import QUEUES, Deps, Module, Opcode, queue_name
from ..isa.columns import Columns
from ..isa.fields import Ints

Queue = tuple[Module, Module]
NONE, NEVER = -1, -2
"""In `Waits.before`: no token is needed, or it is there from the start; nobody will ever give it."""


@dataclass(frozen=True)
class Waits:
    """`before[n, 2]`: the instructions whose tokens an instruction takes from its two neighbours, or NONE, or NEVER.

    `left` counts the tokens that remain in each queue at the end.
    """

    before: Ints
    left: dict[Queue, int]


def check_flags(c: Columns) -> None:
    """Raise MachineError for token bits of a queue that does not exist, and for a FINISH that is not the last."""
    for module, bits, names in (
        (Module.LOAD, Deps.POP_PREV | Deps.PUSH_PREV, "pop_prev or push_prev, for nothing comes before load"),
        (Module.STORE, Deps.POP_NEXT | Deps.PUSH_NEXT, "pop_next or push_next, for nothing comes after store"),
    ):
        at = np.flatnonzero((c.module == module) & ((c.flags & bits) != 0)).tolist()
        require(not at, MachineError, f"instruction {at[:1]}", f"{module.name.lower()} cannot {names}")
    finish = c.rows(Opcode.FINISH).tolist()
    law = "FINISH must be the last instruction, and the only one of its kind"
    require(finish == [len(c) - 1], MachineError, "program", law, instructions=len(c), finish_at=finish[:3])
    require(not c.flags[-1] & (Deps.POP_PREV | Deps.POP_NEXT), MachineError, "FINISH", "cannot wait for a token")


def waits(c: Columns, tokens: Mapping[Queue, int] | None = None) -> Waits:
    """Match pops and pushes; `tokens` lie in the queues at the start (none by default)."""
    before = np.full((len(c), 2), NONE, np.int64)
    left = {}
    for source, target in QUEUES:
        forward = source < target
        # tokens from the launch before are taken first; then the k-th pop takes that of the k-th push
        push, pop = (Deps.PUSH_NEXT, Deps.POP_PREV) if forward else (Deps.PUSH_PREV, Deps.POP_NEXT)
        givers = np.flatnonzero((c.module == source) & ((c.flags & push) != 0))
        takers = np.flatnonzero((c.module == target) & ((c.flags & pop) != 0))
        have = (tokens or {}).get((source, target), 0)
        giver = np.full(len(takers), NEVER, np.int64)
        giver[:have] = NONE
        matched = min(len(givers), max(len(takers) - have, 0))
        giver[have : have + matched] = givers[:matched]
        before[takers, 0 if forward else 1] = giver
        left[source, target] = max(have + len(givers) - len(takers), 0)
    return Waits(before, left)


def order(c: Columns, needs: Waits, rng: np.random.Generator | None = None) -> list[int]:
    """The instructions in an order that respects modules and tokens, FINISH last.

    A module runs until it must wait, then the next one does; `rng` picks the next one at random.  All such orders give
    the same result, unless the program lacks a token that it needs.  Raises DeadlockError, which names who waits for
    what, when no order exists.
    """
    first, second = needs.before[:, 0].tolist(), needs.before[:, 1].tolist()
    todo = [np.flatnonzero(c.module == module).tolist() for module in Module]
    done, position, out = [False] * len(c), [0, 0, 0], list[int]()
    finish = len(c) - 1
    done.extend((False, True))  # what NEVER and NONE index
    while True:
        before = len(out)
        for m in (0, 1, 2) if rng is None else rng.permutation(3).tolist():
            queue, k = todo[m], position[m]
            while k < len(queue) and done[first[i := queue[k]]] and done[second[i]] and i != finish:
                done[i] = True
                out.append(i)
                k += 1
            position[m] = k
        if len(out) == finish:
            return [*out, finish]
        if len(out) == before:
            stuck = _waiting(needs, todo, position)
            raise DeadlockError(f"deadlock after {len(out)} of {len(c)} instructions: {stuck}")


def _waiting(needs: Waits, todo: list[list[int]], position: list[int]) -> str:
    """Who waits for what, where the program got stuck."""
    parts = []
    for module, queue, k in zip(Module, todo, position, strict=True):
        if k < len(queue):
            i = queue[k]
            missing = [
                queue_name(source, module)
                for source, giver in ((module - 1, needs.before[i, 0]), (module + 1, needs.before[i, 1]))
                if giver == NEVER or (giver != NONE and giver in todo[source - 1][position[source - 1] :])
            ]
            if missing:
                parts.append(f"{module.name.lower()} waits at instruction {i} for a token {' and '.join(missing)}")
    return "; ".join(parts)
