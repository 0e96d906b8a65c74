"""Every CUDA sketch of the golden file compiles for sm_80 and sm_90, and asks for no more than a device has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import te_lite as te
from benchmarks.compiled import compile_many
from codegen_cuda import CompileError, Limits, check_limits, emit
from te_lite.environment import CODEGEN_CUDA_CACHE
from tests.codegen_cuda.golden_sketches import ENTRIES, annotated, entry_name, sketches_of
from tests.codegen_cuda.gpu_nests import HAVE_COMPILER, NO_COMPILER
from tests.nonempty import nonempty

pytestmark = pytest.mark.skipif(not HAVE_COMPILER, reason=NO_COMPILER)
each_entry = pytest.mark.parametrize("entry", ENTRIES, ids=entry_name)


@pytest.fixture(autouse=True)
def session_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One cache for all tests of a run: equal programs are compiled once."""
    folder = tmp_path_factory.getbasetemp() / "kernels"
    monkeypatch.setenv(CODEGEN_CUDA_CACHE.name, str(folder))
    return folder


def compile_sketches(entry: dict[str, Any], seeds: range) -> None:
    """Random programs of every sketch within the limits compile; none is outside of them."""
    sources = []
    for k, sketch in nonempty(enumerate(sketches_of(entry))):
        for seed in nonempty(seeds):
            func = te.lower(annotated(sketch, k, seed), name=entry["workload"])
            assert check_limits(func, Limits()) == []
            sources.append(emit(func).source)
    for arch in ("sm_80", "sm_90"):
        for module in nonempty(compile_many(sources, arch, workers=2)):
            assert not isinstance(module, CompileError), str(module)
            assert module.cubin[:4] == b"\x7fELF" and module.resources


@pytest.mark.long
@each_entry
@pytest.mark.one_in(2)
def test_every_sketch_compiles(entry: dict[str, Any]) -> None:
    compile_sketches(entry, range(1))


@pytest.mark.slow
@each_entry
def test_twenty_annotations_of_every_sketch_compile(entry: dict[str, Any]) -> None:
    compile_sketches(entry, range(1, 20))
