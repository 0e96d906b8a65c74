"""ONNX's own node tests: none is wrong, none crashes, and `onnx_refused.txt` names all that are refused.

That file may only shrink: what it names is refused today, and a test that is refused without being named fails.  It
holds for the tests of onnx 1.18 (their folder in the variable ANSOR_ONNX_NODE_TESTS) and for those that the installed
onnx generates.
"""

from __future__ import annotations

import os
import shutil
from functools import cache
from pathlib import Path

import pytest

pytest.importorskip("onnxruntime")

from benchmarks.onnx_node_tests import Case, cases, generated, tried, typed
from relay_lite.frontend.onnx.versions import OPSETS

FOLDER = os.environ.get("ANSOR_ONNX_NODE_TESTS")
REFUSED = set((Path(__file__).parent / "onnx_refused.txt").read_text().split())
COMPILED = {
    "test_attention_4d_causal": "attention",
    "test_acosh": "acosh",
    "test_bitwise_xor_i32_2d": "bitwisexor",
    "test_dynamicquantizelinear": "dynamicquantizelinear",
    "test_gathernd_example_int32_batch_dim1": "gathernd",
    "test_gridsample_reflection_padding": "gridsample",
    "test_gru_with_initial_bias": "gru",
    "test_lstm_with_peepholes": "lstm",
    "test_qlinearconv": "qlinearconv",
    "test_qlinearmatmul_2D_uint8_float32": "qlinearmatmul",
    "test_rms_normalization_2d_axis0": "rmsnormalization",
    "test_rotary_embedding_interleaved": "rotaryembedding",
    "test_scatter_elements_with_duplicate_indices": "scatterelements",
    "test_scatternd_max": "scatternd",
    "test_top_k_smallest": "topk",
    "test_resize_downsample_scales_linear_antialias": "resize",
    "test_scan9_sum": "scan",
    "test_hardmax_axis_1": "hardmax",
}
"""Tests, and the module of onnx that draws each."""
LARGE = {"test_attention_4d_causal", "test_gridsample_reflection_padding", "test_rotary_embedding_interleaved"}
"""Those of many kernels: for `make fuzz`, which compiles every test."""


def case_of(name: str) -> Case:
    """A test of `COMPILED`; where onnx draws them, it need not draw all the others."""
    if FOLDER:
        return every_case()[name]
    return next(typed(case) for case in generated(COMPILED[name]) if case.name == name)


@cache
def every_case() -> dict[str, Case]:
    """The core tests whose opset is read, by name."""
    found = cases(Path(FOLDER) if FOLDER else None)
    return {c.name: c for c in found if all(o.version < OPSETS.stop for o in c.model.opset_import if not o.domain)}


@pytest.mark.long
def test_no_node_test_is_wrong_and_the_refused_are_named() -> None:
    results = [tried(case, "reference") for case in every_case().values()]
    assert len(results) > 1200
    bad = {r.name: r.reason for r in results if r.outcome in ("wrong", "crashed")}
    assert not bad
    assert {r.name for r in results if r.outcome == "refused"} == REFUSED & set(every_case())


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler")
@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] if n in LARGE else []) for n in COMPILED])
@pytest.mark.one_in(2)
def test_a_node_test_compiles_for_c(name: str) -> None:
    result = tried(case_of(name), "c")
    assert result.outcome == "pass", result.reason


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler")
def test_every_node_test_compiles_for_c() -> None:
    results = [tried(case, "c") for name, case in every_case().items() if name not in REFUSED]
    assert not {r.name: r.reason for r in results if r.outcome not in ("pass", "differs")}
