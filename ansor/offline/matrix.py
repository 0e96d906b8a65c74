"""Measured programs as arrays: what a model or a searcher reads of a log, in one file of NumPy's (`.npz`).

    features         float32 [programs, columns], the features of a program added up over its stages
    columns, units   what each column says (`ansor/features/schema.py`); version: of that schema, with its hash
    decisions        int32 [programs, names], the numbers in its steps, 0 where a program has no such decision; the
                     first name is `structure`, programs with the same steps but for those numbers
    names            a name for each of them, the loop that is split and the number of the part
    seconds          float64 [programs], inf for one that failed; errors: int32, 0 for one that ran
    workload, target, task, log     what was measured, its title, and the name of the log

Program k is record k of the log, of those that are believed and replay.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from ansor.features import SCHEMA
from te_lite.computation.computation import Computation
from te_lite.errors import TeError, require
from te_lite.schedule.loop_steps import Split
from te_lite.schedule.step import Step

from ..core.errors import NoRecordError, TaskError
from ..core.tasks.measure_values import MeasureInput
from ..cost_model.features import FEATURES, source_of
from ..records.lines import Record, validated_records, workload_of
from ..space.step_decisions import held_by, names_of, numbers_of
from .common import without_extents

Array = np.ndarray[Any, np.dtype[Any]]
STRUCTURE = "structure"


@dataclass(frozen=True, eq=False)
class Matrix:
    """The programs of one task; the fields are those of the file, which the module's text lists."""

    features: Array
    columns: Array
    units: Array
    version: str
    decisions: Array
    names: Array
    seconds: Array
    errors: Array
    workload: str
    target: str
    task: str
    log: str

    def __len__(self) -> int:
        return len(self.seconds)

    def save(self, file: str | os.PathLike[str]) -> None:
        """Write the file, columns after one another, which packs them well."""
        arrays = {field.name: getattr(self, field.name) for field in fields(self)}
        arrays["features"] = np.asfortranarray(self.features)
        arrays["decisions"] = np.asfortranarray(self.decisions)
        np.savez_compressed(file, **arrays)


def load_matrix(file: str | os.PathLike[str]) -> Matrix:
    """What `save` wrote.  Raises TaskError for another file."""
    law = "a file that `ansor dataset LOG` wrote is needed"
    try:
        with np.load(file, allow_pickle=False) as held:
            found = {field.name: held[field.name] for field in fields(Matrix)}
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise TaskError(f"{os.fspath(file)}: {law}: {error}") from error
    return Matrix(**{name: value.item() if value.ndim == 0 else value for name, value in found.items()})


def matrices_of(log: str | os.PathLike[str]) -> list[Matrix]:
    """One for each task of a log.  Raises NoRecordError for a log without a program that can be read."""
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in validated_records(log):
        groups.setdefault(workload_of(record[0]), []).append(record)
    found = [made for group in groups.values() if (made := matrix_of(group, Path(log).name)) is not None]
    require(found, NoRecordError, os.fspath(log), "has no program whose features can be computed", tasks=len(groups))
    return found


def matrix_of(records: Sequence[Record], log: str) -> Matrix | None:
    """The matrix of records of one task; None where its computation is not known here, or no program replays."""
    task = records[0][0].task
    try:
        dag, hardware = task.compute_dag, task.hardware_params
        usable = [(inp, res) for inp, res in records if _replays(inp)]
    except TeError:
        return None
    rows = source_of(task.target).rows([inp.state for inp, _ in usable], hardware)
    kept = [(inp, res, row) for (inp, res), row in zip(usable, rows, strict=True) if len(row)]
    if not kept:
        return None
    names, decisions = coordinates(dag, [inp.steps for inp, _, _ in kept])
    own = source_of(task.target) is FEATURES
    width = kept[0][2].shape[1]
    columns = [c.name for c in SCHEMA] if own else [f"column {k}" for k in range(width)]
    return Matrix(
        np.stack([row.sum(axis=0, dtype=np.float32) for _, _, row in kept]),
        np.array(columns), np.array([c.unit for c in SCHEMA] if own else [""] * width),
        source_of(task.target).schema, decisions, np.array(names),
        np.array([res.cost if res.ok else np.inf for _, res, _ in kept]),
        np.array([res.error_no for _, res, _ in kept], np.int32),
        task.workload_key, str(task.target), task.title, log,
    )  # fmt: skip


def _replays(inp: MeasureInput) -> bool:
    try:
        return bool(inp.state.stages)
    except TeError:
        return False


def coordinates(dag: Computation, programs: Sequence[tuple[Step, ...]]) -> tuple[list[str], Array]:
    """The decisions of programs, int32 [programs, names], by name; the first column numbers the structures."""
    structures: dict[tuple[object, ...], int] = {}
    titles: dict[int, tuple[str, ...]] = {}
    columns: dict[str, int] = {STRUCTURE: 0}
    rows: list[dict[int, int]] = []
    for steps in programs:
        number = structures.setdefault(_structure(steps), len(structures))
        if number not in titles:
            titles[number] = names_of(dag, steps)
            for name in titles[number]:
                columns.setdefault(name, len(columns))
        held = zip(titles[number], numbers_of(steps) or (), strict=False)
        rows.append({0: number, **{columns[name]: value for name, value in held}})
    out = np.zeros((len(rows), len(columns)), np.int32)
    for k, row in enumerate(rows):
        out[k, list(row)] = list(row.values())
    return list(columns), out


def _structure(steps: Sequence[Step]) -> tuple[object, ...]:
    """The steps of a program, without the numbers that are decided."""
    return tuple([
        (type(step), step.stage, step.iter if isinstance(step, Split) else 0, len(held_by(step)[1]))
        if held_by(step)[1] else without_extents(step)
        for step in steps
    ])  # fmt: skip
