"""Reading features in tests: columns by name, off their scale."""

from __future__ import annotations

from typing import Any

import numpy as np

from ansor.core.target.hardware import HardwareParams
from ansor.features import INDEX, SCHEMA, extract, state_features
from ansor.space.programs import Programs
from te_lite.schedule.state import INLINED, State

HARDWARE = {
    "c": HardwareParams(4, 64, 64, 0, 0, 0, 0, 0),
    "cuda": HardwareParams(-1, 16, 64, 49152, 2**31 - 1, 1024, 8, 32),
}


class Row:
    """The columns of one stage: `row["points"]`."""

    def __init__(self, values: Any) -> None:
        self.values = values

    def __getitem__(self, name: str) -> float:
        value = float(self.values[INDEX[name]])
        return 2.0**value - 1 if SCHEMA[INDEX[name]].scale == "log2" else value


def rows_of(state: State, target: str) -> dict[int, Row]:
    """The row of every computed stage of a state."""
    found = state_features(state, HARDWARE[target])
    stages = [k for k, s in enumerate(state.stages) if not s.is_placeholder and s.where != INLINED]
    assert len(stages) == len(found)
    return {k: Row(values) for k, values in zip(stages, found, strict=True)}


def assert_lanes_are_states(programs: Programs, states: dict[int, State], target: str) -> None:
    """The lanes of `programs` have exactly the features of the states with their numbers."""
    found = extract(programs, HARDWARE[target])
    assert found.shape == (programs.n, found.shape[1], len(SCHEMA)) and found.dtype == np.float32
    assert np.isfinite(found).all()
    for lane, state in states.items():
        single = state_features(state, HARDWARE[target])
        wrong = [(r, SCHEMA[c].name, found[lane, r, c], single[r, c]) for r, c in np.argwhere(found[lane] != single)]
        assert not wrong, (lane, wrong[:5])
