"""Programs are compiled by gcc and by clang, each with the flags that it knows."""

import subprocess
from pathlib import Path

import numpy as np
import pytest

import codegen_c
import te_lite as te
from codegen_c.compile import FLAGS, OWN_FLAGS, processor_flags
from codegen_c.errors import CompileError
from te_lite import environment
from tests.workloads import matmul

HERE = sorted({"gcc", environment.CC.text or "gcc"})


@pytest.mark.parametrize("compiler", HERE)
def test_no_flag_is_refused_or_passed_over(compiler: str, tmp_path: Path) -> None:
    given = tmp_path / "empty.c"
    given.write_text("int f(void) { return 0; }\n")
    flags = [f for f in (*FLAGS, *processor_flags((compiler,))) if f != "-w"]
    done = subprocess.run([compiler, "-Werror", *flags, str(given), "-o", str(tmp_path / "made")], capture_output=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("compiler", HERE)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_both_compile_right_programs(compiler: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", compiler)
    tensors = matmul(8, 16, 24, dtype)
    s = te.create_schedule(tensors[-1].op)
    s[tensors[-1]].vectorize(s[tensors[-1]].op.axis[1])
    rng = np.random.default_rng(1)
    a, b = [rng.integers(-3, 4, t.shape).astype(dtype) for t in tensors[:2]]
    got = np.full(tensors[-1].shape, np.nan, dtype)
    codegen_c.build(te.lower(s, tensors))(a, b, got)
    np.testing.assert_array_equal(got, a.astype("float64") @ b.astype("float64"))


def test_a_compiler_without_float16(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    old = tmp_path / "old"
    old.write_text("#!/bin/sh\ncase $* in *-E*|*--version*) exit 0;; esac\n"
                   "echo 'program.c:1:1: error: _Float16 is not supported on this target' >&2; exit 1\n")  # fmt: skip
    old.chmod(0o755)
    monkeypatch.setenv("CC", str(old))
    tensors = matmul(2, 2, 2, "float16")
    with pytest.raises(
        CompileError, match="the program computes with float16, which needs gcc 12 or clang 16, got old"
    ):
        codegen_c.build(te.lower(te.create_schedule(tensors[-1].op), tensors))


def test_gcc_knows_no_flag_of_clang_alone() -> None:
    known = processor_flags(("gcc",))
    assert "-fno-tree-loop-if-convert" in known
    assert set(known) < set(OWN_FLAGS)
