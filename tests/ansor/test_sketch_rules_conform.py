"""Every sketch rule of the package passes the suite of sketch rules, the extra ones that of sketches."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

import te_lite as te
from ansor.sketch import CPU_RULES, GPU_RULES, RULES, generate_sketches
from ansor.sketch.generate import OWNERS, extra_sketches
from ansor.sketch.rule import SketchRule
from benchmarks import workloads as benchmarks
from te_lite import ComputeDAG, Tensor, topi
from te_lite.schedule.state import State
from tests.ansor import sketch_cases
from tests.ansor.sketch_cases import HARDWARE
from tests.ansor_ext.attention.test_attention import Case
from tests.conformance.sketch_rule import SketchesSuite, SketchRuleSuite, Watched
from tests.conv_layer import conv2d_layer


def _halves(m: int, n: int, k: int) -> list[Tensor]:
    a, b = te.placeholder((m, k), name="A", dtype="float16"), te.placeholder((n, k), name="B", dtype="float16")
    return [a, b, topi.nn.dense(a, b, out_dtype="float32")]


def _bytes(n: int, m: int, k: int) -> list[Tensor]:
    """A product of unsigned by signed bytes, scaled."""
    a, b = te.placeholder((n, k), "uint8", name="a"), te.placeholder((m, k), "int8", name="b")
    product = topi.nn.dense(a, b, out_dtype="int32")
    return [a, b, te.compute((n, m), lambda i, j: product[i, j].astype("float32") * 0.5, name="scaled")]


SMALL: dict[str, ComputeDAG] = {
    "matmul": ComputeDAG(sketch_cases.matmul(12, 20, 16)),
    "primes": ComputeDAG(sketch_cases.matmul(13, 11, 7)),
    "deep": ComputeDAG(sketch_cases.matmul(4, 4, 96)),
    "conv": ComputeDAG(sketch_cases.conv2d_bn_relu(1, 5, 5, 2, 4, 3, 2, 1)),
    "softmax": ComputeDAG(sketch_cases.softmax(3, 70)),
    "winograd": ComputeDAG(sketch_cases.winograd(1, 2, 2, 1, 2)),
    "by axis": ComputeDAG(sketch_cases.winograd_by_axis((1, 3, 3, 16), 16, 2)),
    "window": ComputeDAG(benchmarks.depthwise_conv2d(1, 3, 5, 16, 3, 3, 1, 1)),
    "image": ComputeDAG(benchmarks.conv2d(1, 5, 5, 2, 16, 3, 1, 1)),
    "pixels": ComputeDAG(conv2d_layer(1, 5, 6, 4, 8, 1, 1, 0)),
    "residual": ComputeDAG(sketch_cases.residual(8)),
    "wide": ComputeDAG(sketch_cases.matmul(9, 130, 14)),
    "broad": ComputeDAG(sketch_cases.matmul(400, 400, 5)),
    "halves": ComputeDAG(_halves(24, 20, 16)),
    "bytes": ComputeDAG(_bytes(6, 20, 64)),
    "long": ComputeDAG(sketch_cases.softmax(1, 16400)),
    "tile": ComputeDAG(sketch_cases.matmul(60, 63, 17)),
    "panel": ComputeDAG(sketch_cases.matmul(33, 40, 34)),
    "attention": ComputeDAG(Case((1, 17, 40, 16)).tensors()),
}


def name_of(rule: SketchRule) -> str:
    return type(rule).__name__


APPLIES: dict[str, tuple[str, ...]] = {
    "AlwaysInline": ("conv",),
    "SimplifyComputeWithConstTensor": ("winograd",),
    "AddRfactor": ("deep", "softmax"),
    "AddCacheWrite": ("matmul", "primes"),
    "MultiLevelTilingWithFusion": ("matmul", "conv", "residual"),
    "MultiLevelTiling": ("matmul", "residual"),
    "SkipStage": ("matmul", "softmax"),
    "AddCacheRead": ("matmul", "conv"),
    "SpecialComputeLocationGPU": ("winograd",),
    "CrossThreadReduction": ("deep", "softmax"),
}
"""Some of the workloads that a rule has something to do in."""


class EveryRule(SketchRuleSuite):
    def workloads(self) -> Mapping[str, ComputeDAG]:
        return {name: SMALL[name] for name in APPLIES[name_of(self.watched.rule)]}


class TestCpuRules(EveryRule):
    @pytest.fixture(params=CPU_RULES, ids=name_of)
    def rule(self, request: pytest.FixtureRequest) -> SketchRule:
        made: SketchRule = request.param
        return made


class TestGpuRules(EveryRule):
    """`MultiLevelTiling` is not among them: the two rules before it leave it nothing (a test below says so)."""

    target = "cuda"

    @pytest.fixture(params=[r for r in GPU_RULES if name_of(r) != "MultiLevelTiling"], ids=name_of)
    def rule(self, request: pytest.FixtureRequest) -> SketchRule:
        made: SketchRule = request.param
        return made


EXTRA = {
    ("c", "split_reduction"): ("deep",), ("cuda", "split_reduction"): ("deep",), ("cuda", "injective"): ("softmax",),
    ("c", "joined_rows"): ("image",), ("c", "joined_columns"): ("pixels",),
    ("c", "packed_read"): ("wide",), ("c", "micro_kernel"): ("wide",), ("c", "winograd"): ("by axis",),
    ("c", "byte_products"): ("bytes",),
    ("c", "windows"): ("window",), ("c", "shared_panels"): ("broad",), ("cuda", "padded_shared"): ("matmul",),
    ("cuda", "double_buffer"): ("matmul", "conv"), ("cuda", "split_reduction_ahead"): ("deep",),
    ("cuda", "skinny"): ("deep",), ("cuda", "rows"): ("softmax",), ("c", "rows"): ("softmax",),
    ("cuda", "long_rows"): ("long",), ("cuda", "transposed_shared_ahead"): ("conv",),
    ("cuda", "register_tiles"): ("tile",), ("cuda", "sliced_tiles"): ("panel",),
    ("cuda", "tensor_core"): ("halves",), ("cuda", "attention"): ("attention",),
}  # fmt: skip


class TestExtraRules(SketchesSuite):
    @pytest.fixture(autouse=True, params=EXTRA, ids="-".join)
    def _rule(self, request: pytest.FixtureRequest) -> None:
        self.target, self.name = request.param

    def workloads(self) -> Mapping[str, ComputeDAG]:
        return {name: SMALL[name] for name in EXTRA[self.target, self.name]}

    def sketches(self, dag: ComputeDAG) -> list[State]:
        return extra_sketches(dag, self.target, self.hardware, rules=[self.name])


def test_on_a_gpu_every_tiled_stage_is_cached_or_fused() -> None:
    """So the rule of plain tiling, which comes after those two, has nothing to do."""
    for dag in SMALL.values():
        watched = [Watched(rule) for rule in GPU_RULES]
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(RULES, "cuda", tuple(watched))
            generate_sketches(dag, "cuda", HARDWARE["cuda"])
        assert not next(w for w in watched if name_of(w.rule) == "MultiLevelTiling").applied


def test_all_rules_are_here() -> None:
    assert set(APPLIES) == {name_of(rule) for rules in RULES.values() for rule in rules}
    assert {name for _, name in EXTRA} == set(OWNERS)
