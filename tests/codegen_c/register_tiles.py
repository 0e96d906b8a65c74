"""What the emitter and the description say of the register tiles of random programs, side by side."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

import ansor
import codegen_c
import te_lite as te
from ansor.features.held_sums import HeldSums, held_sums, reads_of
from ansor.sketch import generate_sketches
from ansor.space.programs import Programs
from codegen_c.indices import Indices
from codegen_c.promote import promote
from codegen_c.vectorize import legalise
from te_lite.bounds.bounds import infer_bounds
from te_lite.bounds.nest import nests_of
from te_lite.loops.register_tile import VectorUnit
from te_lite.loops.stmt import Alloc, For, LoweredFunc, Seq, stmts_of
from te_lite.schedule.state import State
from tests.drawn_programs import drawn_program

HARDWARE = ansor.HardwareParams(2, 64, 64, 0, 0, 0, 0, 0)


def programs_of(tensors: list[te.Tensor], count: int, rng: np.random.Generator) -> Iterator[State]:
    """`count` random programs of each sketch of a computation for processors."""
    for sketch in generate_sketches(te.ComputeDAG(tensors), "c", HARDWARE):
        for _ in range(count):
            state = drawn_program(sketch, "c", HARDWARE, rng)
            assert state is not None
            yield state


@dataclass(frozen=True)
class Held:
    """The sums of a stage in registers: how many vectors, for how many steps."""

    stage: str
    vectors: int
    steps: int


def emitted(func: LoweredFunc, options: codegen_c.Options) -> set[Held]:
    """The tiles in the loops that the emitter prints."""
    indices = Indices(func.body)
    body, lanes = legalise(func.body, options, indices)
    found = set()
    for s in stmts_of(promote(body, options, lanes, indices)):
        if isinstance(s, Alloc) and s.buffer.name.endswith("_r"):
            assert isinstance(s.body, Seq)
            inner = next(x for x in s.body.stmts if isinstance(x, For) and x.var not in lanes)
            steps = 1
            while isinstance(inner, For) and inner.var not in lanes:
                steps, inner = steps * inner.extent, inner.body
            vectors = len(inner.stmts) if isinstance(inner, Seq) else 1
            found.add(Held(s.buffer.name.removesuffix("_r"), vectors, steps))
    return found


def described(state: State, unit: VectorUnit) -> dict[str, HeldSums]:
    """What features and the analytical model read of the stages of a program that reduce, by the name of the stage."""
    bounds = infer_bounds(state)
    programs, nests = Programs(bounds), nests_of(bounds)
    found = {}
    for k, nest in nests.items():
        held = held_sums(programs, nest, nests, reads_of(bounds, k), unit)
        if held is not None:
            found[bounds.state.ops[k].name] = held
    return found


def held_in(held: dict[str, HeldSums]) -> set[Held]:
    """The tiles that are described."""
    return {Held(name, int(h.registers), int(h.steps)) for name, h in held.items() if h.kept}
