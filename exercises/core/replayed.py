"""A small space as data: the features of all its programs, and the seconds that a log has of them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np

import ansor
from ansor.features import state_features

LOG = Path(__file__).resolve().parent.parent.parent / "examples" / "logs" / "norm_every_program.json"


@cache
def every_program() -> tuple[np.ndarray, np.ndarray]:
    """Features float64 [programs, columns], added up over the stages of a program, and seconds [programs]."""
    hardware = ansor.HardwareParams(num_cores=2, target="c")
    records = list(ansor.load_records(str(LOG)))
    states = [inp.state for inp, _ in records]
    rows = [np.asarray(state_features(state, hardware), np.float64).sum(axis=0) for state in states]
    return np.stack(rows), np.array([result.cost for _, result in records])
