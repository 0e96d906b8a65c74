"""Sampled rows keep to the limits, reach everything, follow the seed, and compute the workload."""

from __future__ import annotations

import numpy as np
import pytest

import codegen_c
import te_lite as te
from ansor.core.errors import TaskError
from ansor.core.target.hardware import HardwareParams
from ansor.core.values.options import SketchOptions
from ansor.sketch import generate_sketches
from ansor.sketch.shared_memory import shared_bytes
from ansor.space.decisions.factor_tables import tile_table
from ansor.space.programs import programs
from ansor.space.sample import sample_rows
from ansor.space.spaces import Variant, has_nest, home, mutate_place, placed, random_space, random_variant, space_of
from ansor.space.states import concrete
from te_lite import ComputeDAG
from te_lite.bounds.bounds import infer_bounds
from te_lite.expr.lanes import product
from te_lite.meaning.interp import run
from te_lite.schedule.state import INLINED
from te_lite.schedule.step import to_json
from tests.ansor import sketch_cases
from tests.ansor.sketch_cases import HARDWARE, dag_of
from tests.ansor.test_population_programs import any_rows, variants
from tests.drawn_programs import spaces_of
from tests.nonempty import nonempty
from tests.oracle import Oracle

GPU_CASES = ["matmul", "small_matmul", "conv2d_bn_relu", "strided_conv", "double_matmul", "winograd", "softmax_abcd"]


def variant_of(dag: ComputeDAG, target: str, sketch: int = 0, options: SketchOptions | None = None) -> Variant:
    sketches = generate_sketches(dag, target, HARDWARE[target], options=options)
    return home(space_of(sketches[sketch], target, HARDWARE[target], options))


@pytest.mark.parametrize("name", GPU_CASES)
@pytest.mark.one_in(3)
def test_blocks_keep_to_their_limits(name: str) -> None:
    hardware = HARDWARE["cuda"]
    rng = np.random.default_rng(len(name))
    for variant in nonempty(variants(dag_of(name), "cuda", rng, most=2)):
        rows = sample_rows(variant, 1000, rng, "cuda", hardware)
        assert rows.shape == (1000, variant.space.width) and rows.dtype == np.int64
        made = programs(variant, rows, "cuda", hardware)
        for total in shared_bytes(made.bounds).values():
            assert np.all(total <= hardware.max_shared_memory_per_block)
        for stage in nonempty(made.bounds.state.stages):
            for tag, most in (("vthread", 8), ("threadIdx.x", 1024)):
                assert np.all(np.asarray(product([it.extent for it in stage.iters if it.annotation == tag])) <= most)
            if any(it.annotation == "vthread" for it in stage.iters) and np.prod(stage.op.shape) > 64:
                (threads,) = [it.extent for it in stage.iters if it.annotation == "threadIdx.x"]
                assert np.all(np.asarray(threads) >= 32)
        for c in variant.space.choices:
            assert set(rows[:, c.column].tolist()) <= set(c.values)
            if c.kind == "fetch":
                for row in nonempty(rows[:8]):
                    regions = infer_bounds(concrete(variant, row, "cuda", hardware)).regions[c.stage]
                    long = [int(r.extent) for r in regions if r.extent > 1]
                    assert (long or [1])[-1] % row[c.column] == 0


@pytest.mark.parametrize("target", ["c", "cuda"])
def test_every_tile_is_reached(target: str) -> None:
    dag = ComputeDAG(sketch_cases.matmul(4, 6, 8))
    variant = variant_of(dag, target)
    rows = sample_rows(variant, 6000, np.random.default_rng(0), target, HARDWARE[target])
    for tile in nonempty(variant.space.tiles):
        table = {tuple(r) for r in tile_table(tile.extents, tile.parts, tile.max_innermost).tolist()}
        drawn = [tuple(r) for r in rows[:, tile.columns].tolist()]
        assert set(drawn) == table
        counts = [drawn.count(t) for t in table]
        assert min(counts) > 0.6 * len(drawn) / len(table) and max(counts) < 1.4 * len(drawn) / len(table)
    for c in nonempty(variant.space.choices):
        if c.kind in ("unroll", "threads"):
            assert set(rows[:, c.column].tolist()) == set(c.values)


def test_little_shared_memory() -> None:
    variant = variant_of(dag_of("matmul"), "cuda")
    rng = np.random.default_rng(0)
    little = HardwareParams(-1, 16, 64, 256, 2**31 - 1, 1024, 8, 32)
    rows = sample_rows(variant, 50, rng, "cuda", little)
    assert len(rows) > 0
    (total,) = shared_bytes(programs(variant, rows, "cuda", little).bounds).values()
    assert np.all(total <= 256)
    none = HardwareParams(-1, 16, 64, 8, 2**31 - 1, 1024, 8, 32)
    assert sample_rows(variant, 50, rng, "cuda", none).shape == (0, variant.space.width)


def test_vector_loops_keep_to_the_options() -> None:
    options = SketchOptions(
        max_vectorize_size=4, max_innermost_split_factor=2, max_innermost_reduce_factor=3,
        disable_change_compute_location=1,
    )  # fmt: skip
    hardware = HARDWARE["c"]
    rng = np.random.default_rng(0)
    sketches = generate_sketches(dag_of("conv2d_bn_relu"), "c", hardware)
    assert [v for s in sketches for v in random_variant(space_of(s, "c", hardware, options), rng).places] == []
    for sketch in sketches:
        variant = home(space_of(sketch, "c", hardware, options))
        rows = sample_rows(variant, 200, rng, "c", hardware, options)
        for t in variant.space.tiles:
            assert t.max_innermost == (3 if t.reduce else 2) and (rows[:, t.columns][:, -1] <= t.max_innermost).all()
        made = programs(variant, rows, "c", hardware)
        seen = 0
        for k, count in made.vectorize.items():
            extents = [np.broadcast_to(it.extent, (200,)) for it in made.bounds.state.stages[k].iters]  # type: ignore[arg-type]
            for i, n in enumerate(np.broadcast_to(count, (200,)).tolist()):
                seen += n > 0
                assert product([int(e[i]) for e in extents[len(extents) - n :]]) <= 4
        assert seen > 100


def test_same_seed_same_rows() -> None:
    for target in ("c", "cuda"):
        (variant, *_) = variants(dag_of("strided_conv"), target, np.random.default_rng(1))
        first, again, other = [
            sample_rows(variant, 64, np.random.default_rng(seed), target, HARDWARE[target]) for seed in (0, 0, 1)
        ]
        assert (first == again).all() and (first != other).any()


# ------------------------------------------------------------------------------------------ spaces and variants


def test_an_rfactor_makes_a_space_for_each_factor() -> None:
    hardware = HARDWARE["c"]
    sketch = generate_sketches(dag_of("min"), "c", hardware)[0]
    spaces = spaces_of(sketch, "c", hardware)
    assert len({s.sketch.steps for s in spaces}) == len(spaces) == 7
    assert random_space(sketch, np.random.default_rng(0), "c", hardware) in spaces
    assert all(s is t for s, t in zip(spaces, spaces_of(sketch, "c", hardware), strict=True))
    with pytest.raises(TaskError, match="factors of rfactors must be given"):
        space_of(sketch, "c", hardware)


def test_variants_are_places_with_a_loop_nest() -> None:
    rng = np.random.default_rng(0)
    found = set()
    for variant in variants(dag_of("attention"), "c", rng, most=20):
        assert has_nest(variant) and len(variant.places) == len(variant.space.movable)
        for _ in range(4):
            moved = mutate_place(variant, rng)
            assert moved is not None and moved != variant and moved.space is variant.space and has_nest(moved)
            found.add(tuple([p.how for p in moved.places]))
    assert {how for hows in found for how in hows} == {"inline", "root", "at"} and len(found) > 10


def test_gpu_variants_have_no_places() -> None:
    rng = np.random.default_rng(0)
    for variant in nonempty(variants(dag_of("attention"), "cuda", rng)):
        assert variant.places == () and mutate_place(variant, rng) is None


def test_inlined_stages_have_no_loops() -> None:
    rng = np.random.default_rng(0)
    hidden = [v for v in variants(dag_of("conv2d_bn_relu"), "c", rng, 30) if any(p.how == "inline" for p in v.places)]
    assert hidden
    for variant in hidden:
        made = programs(variant, sample_rows(variant, 4, rng, "c", HARDWARE["c"]), "c", HARDWARE["c"])
        for k, stage in enumerate(placed(variant).stages):
            if stage.where == INLINED:
                assert k not in made.parallel and k not in made.vectorize and k not in made.unroll


# ----------------------------------------------------------------------------------------------------- meaning

SMALL: dict[str, ComputeDAG] = {
    "matmul": ComputeDAG(sketch_cases.matmul(24, 40, 16)),
    "prime_matmul": ComputeDAG(sketch_cases.matmul(13, 101, 7)),
    "conv2d": ComputeDAG(sketch_cases.conv2d_bn_relu(2, 9, 9, 4, 8, 3, 2, 1)),
    "softmax": ComputeDAG(sketch_cases.softmax(3, 70)),
    "zero_rank": ComputeDAG(sketch_cases.zero_rank_compute(130)),
}


def compiled(func: te.LoweredFunc, args: object) -> None:
    codegen_c.build(func)(*args)  # type: ignore[misc]


@pytest.mark.parametrize("target", ["c", "cuda"])
@pytest.mark.parametrize("name", SMALL)
@pytest.mark.one_in(5)
def test_rows_compute_the_workload(name: str, target: str) -> None:
    dag = SMALL[name]
    oracle = Oracle(dag, np.random.default_rng(7))
    rng = np.random.default_rng([8, len(name)])
    hardware = HARDWARE[target]
    for sketch in nonempty(generate_sketches(dag, target, hardware)[:3]):
        variant = random_variant(random_space(sketch, rng, target, hardware), rng)
        drawn = sample_rows(variant, 8, rng, target, hardware)
        for row in (drawn[0], any_rows(variant.space, 1, rng, drawn)[0]):
            state = concrete(variant, row, target, hardware)
            found = oracle.mismatch(te.lower(state), compiled if target == "c" else run)
            assert found is None, f"{found} in {[to_json(step) for step in state.steps]}"
