"""The schema of the features is complete, described, and pinned to its version."""

from __future__ import annotations

from copy import copy

import numpy as np
import pytest

import te_lite as te
from ansor.core.target.hardware import HardwareParams
from ansor.features import INDEX, SCHEMA, VERSION, schema_hash, state_features
from tests.workloads import matmul

HASHES = {1: "27da0bdcba04472e", 2: "64099385a9c0a58a"}
"""A change of the schema needs a new version, and its hash here."""

ANSOR_COUNTS = ["mad", "addsub", "mul", "divmod", "cmp", "mathfunc", "otherfunc"]
ANSOR_BUFFER = [
    "is_read", "is_write", "is_read_write", "bytes", "unique_bytes", "lines", "unique_lines", "reuse_loop",
    "reuse_serial", "reuse_none", "reuse_dis_iter", "reuse_dis_bytes", "reuse_ct", "bytes_d_reuse_ct",
    "unique_bytes_d_reuse_ct", "lines_d_reuse_ct", "unique_lines_d_reuse_ct", "stride",
]  # fmt: skip


def test_the_hash_changes_with_the_version_only() -> None:
    assert schema_hash() == HASHES[VERSION]


@pytest.mark.parametrize("field", ["name", "unit", "group", "formula", "scale"])
def test_the_hash_sees_every_field(field: str) -> None:
    changed = copy(SCHEMA[7])
    object.__setattr__(changed, field, "other")
    assert schema_hash((*SCHEMA[:7], changed, *SCHEMA[8:])) != schema_hash()


def test_every_column_is_described() -> None:
    assert len(INDEX) == len(SCHEMA)
    for column in SCHEMA:
        assert column.name and column.unit and column.group, column
        assert column.formula.endswith((".", "doubled.")) and len(column.formula.split()) > 2, column
        assert column.scale in ("log2", "none")
        assert (column.scale == "none") == (column.unit in ("flag", "fraction")), column


def test_what_ansor_expresses_is_there() -> None:
    wanted = [f"{kind}_{count}" for kind in ("float", "int") for count in ANSOR_COUNTS]
    wanted += [f"{mark}_{what}" for mark in ("vec", "unroll", "parallel") for what in ("num", "prod", "len")]
    wanted += [f"{kind}Idx_{axis}_len" for kind in ("block", "thread") for axis in "xyz"]
    wanted += [f"B{b}.{name}" for b in range(5) for name in ANSOR_BUFFER]
    wanted += [f"arith_intensity_{i}" for i in range(10)]
    wanted += ["alloc_size", "alloc_prod", "alloc_outer_prod", "alloc_inner_prod"]
    wanted += ["bool_op", "select_op", "is_gpu", "vthread_len", "outer_prod", "num_loops", "auto_unroll"]
    assert not set(wanted) - set(INDEX)
    one_hot = [c for c in SCHEMA if c.name.startswith(("vec_at", "unroll_at", "parallel_at"))]
    assert len(wanted) + len(one_hot) == 164


def test_scales() -> None:
    n, m, k = 7, 6, 5
    hardware = HardwareParams(4, 64, 64, 0, 0, 0, 0, 0)
    row = state_features(te.ComputeDAG(matmul(n, m, k)).init_state, hardware)[0]
    assert row.dtype == np.float32
    assert row[INDEX["points"]] == np.log2(np.float32(1 + n * m * k))
    assert row[INDEX["B0.is_read_write"]] == 1
