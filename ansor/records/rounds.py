"""What a search expected of programs before they were measured, and where its seconds went: comment lines of a log.

    # predicted {"score": 0.81, "round": 3}      right before the record of the program
    # round {"key": ..., "target": ..., "search": 0.4, "wait": 12.5, "build": 20.1, "run": 9.7}

A record has no place for a score that TVM's readers would not stumble over; they skip both lines.
"""

from __future__ import annotations

import json
from dataclasses import asdict, fields

from ..core.tasks.measure_values import Prediction, Spent
from ..core.tasks.task import SearchTask
from .notes import PREDICTED, ROUND, is_number, read_kind, workload_named

DIGITS = 6


def prediction_line(prediction: Prediction) -> str:
    """The line before a record."""
    score = float(f"{prediction.score:.{DIGITS}g}")
    return PREDICTED + json.dumps({"score": score, "round": prediction.round})


def read_prediction(line: bytes, run: int) -> Prediction | None:
    """The prediction of a line in the `run`-th run of a log; None for other lines, and for one that is none."""
    data = read_kind(line, PREDICTED)
    score, number = data.get("score"), data.get("round")
    if is_number(score) and is_number(number, 0) and isinstance(number, int):
        return Prediction(float(score), number, run)
    return None


def round_line(task: SearchTask, spent: Spent) -> str:
    """The line after a round."""
    seconds = {name: float(f"{value:.{DIGITS}g}") for name, value in asdict(spent).items()}
    return ROUND + json.dumps({"key": task.workload_key, "target": str(task.target), **seconds})


def read_round(line: bytes) -> tuple[tuple[str, str], Spent] | None:
    """The workload (`lines.workload_of`) and the seconds of a line; None as for `read_prediction`."""
    data = read_kind(line, ROUND)
    seconds = [float(value) for one in fields(Spent) if is_number(value := data.get(one.name), 0)]
    workload = workload_named(data.get("key"), data.get("target"))
    return None if workload is None or len(seconds) < len(fields(Spent)) else (workload, Spent(*seconds))
