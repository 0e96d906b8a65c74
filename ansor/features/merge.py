"""Many concrete states as few programs with lanes: states of one structure become one lane each."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace

import numpy as np

from te_lite.bounds.bounds import infer_bounds
from te_lite.schedule.state import Relation, SplitRel, Stage, State
from te_lite.schedule.step import Length

from ..core.target.hardware import HardwareParams
from ..space.programs import Programs
from .extraction import extract
from .matrix import Features
from .row_plans import structure


def states_features(states: Sequence[State], hardware: HardwareParams) -> list[Features]:
    """The features of every state, float32 [rows, columns] each, as `state_features` gives them.

    The states may be of different computations; bounds are inferred once for all states of a structure.  Raises
    LowerError when those of a state cannot be inferred.
    """
    groups: dict[Hashable, list[int]] = {}
    for i, state in enumerate(states):
        groups.setdefault(structure(state), []).append(i)
    out: dict[int, Features] = {}
    for members in groups.values():
        found = extract(merged([states[i] for i in members]), hardware)
        out.update(zip(members, found, strict=True))
    return [out[i] for i in range(len(states))]


def merged(states: Sequence[State]) -> Programs:
    """States of one structure as lanes."""
    stages = tuple([_stage(k, states) for k in range(len(states[0].stages))])
    limits = {k: np.array([s.stages[k].auto_unroll_max_step for s in states]) for k in range(len(stages))}
    return Programs(infer_bounds(replace(states[0], stages=stages)), len(states), {"unroll": limits})


def _stage(k: int, states: Sequence[State]) -> Stage:
    relations = zip(*[s.stages[k].relations for s in states], strict=True)
    return replace(states[0].stages[k], relations=tuple([_relation(same) for same in relations]))


def _relation(same: Sequence[Relation]) -> Relation:
    first = same[0]
    if not isinstance(first, SplitRel):
        return first
    columns = zip(*[rel.lengths for rel in same if isinstance(rel, SplitRel)], strict=True)
    return replace(first, lengths=tuple([_lanes(column) for column in columns]))


def _lanes(lengths: Sequence[Length]) -> Length:
    """The lengths as lanes; None when one is undecided."""
    return None if any(length is None for length in lengths) else np.array(lengths, np.int64)
