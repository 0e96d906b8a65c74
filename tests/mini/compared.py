"""One program of the engine in both, the engine and `mini_ansor`: where they say something else."""

from __future__ import annotations

import math

import numpy as np

import mini_ansor.bounds as mini
import te_lite.schedule.region as engine
from ansor.core.target.hardware import HardwareParams
from ansor.features.extraction import state_features
from ansor.features.schema import INDEX
from mini_ansor.__main__ import step_from_json
from mini_ansor.expr import Call, Const, Expr, Op
from mini_ansor.features import NAMES, features
from mini_ansor.program import GPU, Machine
from mini_ansor.program import State as MiniState
from mini_ansor.steps import replay
from te_lite.bounds.bounds import infer_bounds
from te_lite.schedule.state import ATTACHED, SplitRel, State

from .translate import steps_of

MACHINES = {"c": Machine(), "cuda": GPU}
HARDWARE = {
    "c": HardwareParams(4, 64, 64, 0, 0, 0, 0, 0),
    "cuda": HardwareParams(-1, 16, 64, 49152, 2**31 - 1, 1024, 8, 32),
}


def replayed(args: list[Op], state: State) -> MiniState:
    """The program that the steps of a state of the engine make in `mini_ansor`."""
    return replay(args, [step_from_json(step) for step in steps_of(state)])


def divides(state: State) -> bool:
    """Whether the tiles of sums divide: where not, the engine computes whole ones beyond the edge, mini guards each."""
    return all(
        stage.vars[rel.parent].length % math.prod(map(int, rel.lengths)) == 0
        for stage in infer_bounds(state).state.stages
        for rel in (stage.relations if stage.where == ATTACHED and stage.op.reduce_axis else ())
        if isinstance(rel, SplitRel)
    )


def bounds_differ(state: State, program: MiniState, rng: np.random.Generator) -> list[str]:
    """What bound inference says differently: extents of loops, regions of axes, their beginnings at random turns."""
    ours, theirs = mini.Bounds(program), infer_bounds(state)
    turns = {
        (k, it.uid): int(rng.integers(it.length))
        for k, s in enumerate(theirs.state.stages)
        for it in s.vars
        if it.extent
    }
    found = []
    for k, (a, b) in enumerate(zip(ours.state.stages, theirs.state.stages, strict=True)):
        if b.is_placeholder or b.where == "inlined":
            continue
        loops = [(it.name, it.extent, it.annotation) for it in a.current]
        expected = [(it.name, it.extent, it.annotation) for it in b.iters]
        found += [f"{a.op.name}: loops {loops} instead of {expected}"] if loops != expected else []
        regions = [(r.extent, _mini_value(r.start, turns)) for r in ours.regions[k]]
        wanted = [(r.extent, _value(r.min, turns)) for r in theirs.regions[k]]
        found += [f"{a.op.name}: regions {regions} instead of {wanted}"] if regions != wanted else []
    return found


def _value(low: engine.Linear, turns: dict[tuple[int, int], int]) -> int:
    """The start of a region of the engine."""
    total = int(low.const)
    for atom, c in low.terms.items():
        if isinstance(atom, engine.DivAtom):
            base = _value(atom.base, turns)
            total += c * (base % atom.divisor if atom.mod else base // atom.divisor)
        else:
            total += c * turns[atom.stage, atom.uid]
    return total


def _mini_value(e: Expr, turns: dict[tuple[int, int], int]) -> int:
    """The start of a region of `mini_ansor`."""
    match e:
        case Const(value):
            return int(value)
        case mini.LoopVar(stage=stage, id=i):
            return turns[stage, i]
        case Call(op, (a, b)):
            return {"+": int.__add__, "-": int.__sub__, "*": int.__mul__, "//": int.__floordiv__, "%": int.__mod__}[op](
                _mini_value(a, turns), _mini_value(b, turns)
            )
    raise AssertionError(e)


def features_differ(state: State, program: MiniState, target: str) -> set[str]:
    """The columns, of those that both have, in which the features of a program differ."""
    ours = features(program, MACHINES[target])
    theirs = state_features(state, HARDWARE[target])[:, [INDEX[name] for name in NAMES]]
    assert ours.shape == theirs.shape
    return {NAMES[c] for c in np.flatnonzero((~np.isclose(ours, theirs, rtol=1e-5, atol=1e-5)).any(axis=0))}
