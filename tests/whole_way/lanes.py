"""Rows of a variant as lanes against each of them alone: features are finite, estimates positive, and both agree."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

import te_lite as te
from ansor.analytical import CPU, GPUS, Machine, seconds
from ansor.core.target.hardware import HardwareParams
from ansor.features import extract, state_features
from ansor.space.programs import Programs
from te_lite.bounds.bounds import infer_bounds

HARDWARE = {
    "c": HardwareParams(4, 64, 64, 0, 0, 0, 0, 0),
    "cuda": HardwareParams(-1, 16, 64, 49152, 2**31 - 1, 1024, 8, 32),
}
MACHINES: dict[str, Machine] = {"c": CPU("server", 4, 2.5e9, 64, 64), "cuda": GPUS["H200"]}

Faults = Iterator[str]


def feature_faults(many: Programs, alone: dict[int, te.State], target: str) -> Faults:
    """What is wrong with the features of `many`; some of its lanes are the states `alone`."""
    lanes = extract(many, HARDWARE[target])
    if not np.isfinite(lanes).all():
        yield "some features are not finite"
    for lane, state in alone.items():
        if not np.array_equal(lanes[lane], state_features(state, HARDWARE[target])):
            yield "the features of a lane are not those of its state"


def estimate_faults(many: Programs, alone: dict[int, te.State], target: str) -> Faults:
    """What is wrong with the estimated seconds of `many`."""
    times = seconds(many, MACHINES[target])
    if not (np.isfinite(times).all() and (times > 0).all()):
        yield "some estimated times are not positive numbers"
    for lane, state in alone.items():
        if times[lane] != seconds(Programs(infer_bounds(state)), MACHINES[target])[0]:
            yield "the estimate of a lane is not that of its state"


CHECKS: dict[str, Callable[[Programs, dict[int, te.State], str], Faults]] = {
    "features": feature_faults,
    "estimate": estimate_faults,
}
"""By the name of the phase."""
