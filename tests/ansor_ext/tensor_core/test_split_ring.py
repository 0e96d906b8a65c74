"""Sums that blocks of a cluster add up: which sketches have them, results, what is refused, what is caught."""

from __future__ import annotations

import shutil
from functools import cache

import numpy as np
import pytest

import te_lite as te
from ansor.analytical import machine_of, seconds
from ansor.space.programs import program
from ansor.space.spaces import home, space_of
from ansor.space.states import concrete
from ansor_ext.tensor_core import tensor_core
from ansor_ext.tensor_core.warp_tiles import products, table
from codegen_cuda import CudaProgram, EmitError, compile_source, emit
from codegen_cuda.emulation.emulator import run_program
from codegen_cuda.emulation.emulator_report import EmulatorError
from te_lite import Tensor
from te_lite.meaning.interp import run
from te_lite.schedule.replay import replay
from te_lite.schedule.state import State
from te_lite.schedule.step import from_json, to_json
from tests.ansor_ext.tensor_core.test_ring_sketches import (
    FP32X3,
    HARDWARE,
    TARGET,
    exact,
    inputs,
    product,
    rings,
    row_of,
    target_of,
    with_bias_and_relu,
)
from tests.codegen_cuda.gpu_nests import HAVE_COMPILER, NO_COMPILER
from tests.nonempty import nonempty

emulated = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not on PATH: kernels cannot be emulated")
CASES = {
    "columns beyond the edge": product(150, 136, 640, b="nk"),
    "across, bfloat16": product(130, 104, 512, "bfloat16"),
    "bias and relu, across, transposed": with_bias_and_relu(product(136, 70, 512, a="km", b="nk")),
    "rows for columns": product(136, 192, 1024),
    "a batch": product(120, 64, 512, b="nk", batch=2),
    "tf32": product(118, 72, 256, "float32", b="nk"),
    "tf32, B copied": product(118, 72, 256, "float32"),
}


def parts_of(state: State) -> int:
    (made,) = products(state)
    return made.parts


@cache
def split(name: str) -> list[State]:
    """The sketches in which blocks of a cluster add up parts."""
    return list(nonempty([s for s in rings(CASES[name], target_of(name)) if parts_of(s) > 1]))


def drawn(name: str, rng: np.random.Generator, threads: int = 1024) -> tuple[te.LoweredFunc, int]:
    """A program of a sketch whose clusters have so few threads, as the emulator has them, and how many blocks."""
    while True:
        sketch = split(name)[rng.integers(len(split(name)))]
        (made,), space = products(sketch), space_of(sketch, target_of(name), HARDWARE)
        points = table(made, HARDWARE).points
        point = points[rng.integers(len(points))]
        if made.parts * (point[0] + 4) * 32 <= threads:
            state = concrete(home(space), row_of(space, point), target_of(name), HARDWARE)
            return te.lower(state, CASES[name]), made.parts


def assert_right(name: str, got: np.ndarray, arrays: list[np.ndarray]) -> None:
    want, size = exact(CASES[name], arrays), exact(CASES[name], [np.abs(x) for x in arrays])
    unit = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-20}[str(got.dtype)]
    assert (np.abs(got.astype(np.float64) - want) <= 2 * unit * size).all()


def run_on(name: str, made: CudaProgram, rng: np.random.Generator) -> None:
    arrays, out = arrays_of(name, rng)
    run_program(made, [*arrays, out])
    assert_right(name, out, arrays)


def arrays_of(name: str, rng: np.random.Generator) -> tuple[list[np.ndarray], np.ndarray]:
    arrays = inputs(CASES[name], rng)
    return arrays, np.full([int(n) for n in CASES[name][-1].shape], 77, arrays[0].dtype)


def test_which_products_have_them() -> None:
    """Long sums of few results, in parts of whole iterations, of columns that come out even."""
    for args, parts in (
        (product(384, 1536, 6144, b="nk"), {2, 3, 4, 6, 8}),
        (product(256, 1536, 1280, b="nk"), {2, 4}),
        (product(4096, 4096, 4096), set()),
        (product(384, 1536, 6144, "int8", b="nk"), set()),
        (product(384, 1536, 6144, "float32", b="nk"), set()),
    ):
        found = rings(args, FP32X3 if args[0].dtype == "float32" else TARGET)
        assert {parts_of(s) for s in nonempty(found)} - {1} == parts
        for s in found:
            (made,) = products(s)
            for point in table(made, HARDWARE).points:
                assert point[3] % made.parts == 0 and args[0].shape[1] % (64 * made.parts) == 0


@pytest.mark.parametrize("name", CASES)
@pytest.mark.one_in(2)
def test_every_sketch_is_emitted(name: str) -> None:
    """Of clusters that are too large for the emulator, too: parts are so long that a ring has room for their sums."""
    for sketch in split(name):
        made, space = products(sketch)[0], space_of(sketch, target_of(name), HARDWARE)
        state = concrete(home(space), row_of(space, table(made, HARDWARE).points[-1]), target_of(name), HARDWARE)
        assert f"__cluster_dims__(1, {made.parts}, 1)" in emit(te.lower(state, CASES[name])).source


def test_rows_and_columns_change_places_where_few_blocks_have_work() -> None:
    """B lies along its terms then, and blocks have any multiple of 8 columns."""
    for args, turned in (
        (product(384, 1536, 6144), True),
        (product(384, 1536, 6144, b="nk"), False),
        (product(4096, 4096, 4096), False),
    ):
        tiles = [products(s)[0].shared for s in rings(args)]
        assert {x.across for x, _ in nonempty(tiles)} == ({False, True} if turned else {False})
        assert not any(x.across and y.across for x, y in tiles)


@emulated
@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.one_in(2)
def test_rows_for_columns_on_the_emulator(parts: int) -> None:
    name, rng = "rows for columns", np.random.default_rng(6)
    found = rings(CASES[name])
    sketch = next(s for s in found if products(s)[0].shared[0].across and parts_of(s) == parts)
    space, point = space_of(sketch, TARGET, HARDWARE), table(products(sketch)[0], HARDWARE).points[-1]
    state = concrete(home(space), row_of(space, point), TARGET, HARDWARE)
    made = emit(te.lower(state, CASES[name]))
    assert "box_store_2d" in made.source
    run_on(name, made, rng)


@emulated
@pytest.mark.parametrize("columns", [56, 64, 72, 104])
@pytest.mark.one_in(2)
def test_rows_for_columns_in_several_parts(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups of blocks that stay take turns; boxes have 64 columns of the product, or a power of two fewer."""
    monkeypatch.setattr(tensor_core, "RING_BLOCKS", 3)
    args = with_bias_and_relu(product(150, 264, 136))
    point, sketch = next(
        (p, s)
        for s in rings(args)
        for p in table(products(s)[0], HARDWARE).points
        if products(s)[0].shared[0].across and parts_of(s) == 1 and list(p[:4]) == [4, 1, 1, columns // 8]
    )
    space = space_of(sketch, TARGET, HARDWARE)
    state = concrete(home(space), row_of(space, point), TARGET, HARDWARE)
    made = emit(te.lower(state, args))
    assert "box_store_2d" in made.source and "turn_open" in made.source and made.kernels[0].grid == (3, 1, 1)
    arrays = inputs(args, np.random.default_rng(0))
    out = np.full((150, 264), 77, "float16")
    run_program(made, [*arrays, out])
    assert (np.abs(out - exact(args, arrays)) <= 1e-3 + 2.0**-11 * np.abs(out)).all()


def test_records() -> None:
    sketch = split("columns beyond the edge")[0]
    space = space_of(sketch, TARGET, HARDWARE)
    point = table(products(sketch)[0], HARDWARE).points[0]
    state = concrete(home(space), row_of(space, point), TARGET, HARDWARE)
    assert str(replay(state.dag, [from_json(to_json(step)) for step in state.steps])) == str(state)


@emulated
@pytest.mark.parametrize("name", CASES)
@pytest.mark.one_in(4)
def test_draws_on_the_emulator(name: str) -> None:
    rng = np.random.default_rng(1)
    func, parts = drawn(name, rng)
    made = emit(func)
    assert f"__cluster_dims__(1, {parts}, 1)" in made.source and f"cluster_add<{parts}, " in made.source
    run_on(name, made, rng)


@emulated
def test_four_blocks_of_one_group() -> None:
    """As many as the emulator has threads for; sketches have two groups."""
    args, rng = product(120, 136, 1024, b="nk"), np.random.default_rng(5)
    sketch = next(s for s in rings(args) if parts_of(s) == 4)
    space = space_of(sketch, TARGET, HARDWARE)
    state = concrete(home(space), row_of(space, np.array([4, 1, 1, 12, 4])), TARGET, HARDWARE)
    made, arrays = emit(te.lower(state, args)), inputs(args, rng)
    assert made.kernels[0].grid == (4, 4, 1) and made.kernels[0].block == (32, 8, 1)
    out = np.full((120, 136), 77, "float16")
    run_program(made, [*arrays, out])
    size = np.abs(arrays[0]).astype(np.float64) @ np.abs(arrays[1]).T.astype(np.float64)
    assert (np.abs(out - exact(args, arrays)) <= 2.0**-10 * size).all()


def test_the_interpreter_computes_one_part_after_the_other() -> None:
    name, rng = "tf32", np.random.default_rng(2)
    func, _ = drawn(name, rng)
    arrays, out = arrays_of(name, rng)
    run(func, [*arrays, out])
    assert_right(name, out, arrays)


@pytest.mark.skipif(not HAVE_COMPILER, reason=NO_COMPILER)
def test_nvrtc_keeps_sums_in_registers() -> None:
    rng = np.random.default_rng(3)
    for name in nonempty(["columns beyond the edge", "across, bfloat16", "tf32"]):
        (found,) = compile_source(emit(drawn(name, rng)[0]).source, "sm_90").resources
        assert (found.stack, found.spill_stores, found.spill_loads) == (0, 0, 0)


SPOILT = {
    "sums that are read too early": ("barrier.cluster.wait.acquire;", "// "),
    "a ring that other warps still read": ('asm volatile("bar.sync 15', '// asm volatile("bar.sync 15'),
    "a block that ends too early": ("  cluster_close();\n}", "}"),
    "the share of another block": ("const int first = rank * share;", "const int first = 0;"),
    "one block less": ("block < blocks; ++block) {", "block < blocks - 1; ++block) {"),
}


@emulated
@pytest.mark.parametrize("name", SPOILT)
@pytest.mark.one_in(5)
def test_a_spoilt_cluster_is_caught(name: str) -> None:
    """The emulator refuses it, or its result is wrong."""
    case, rng = "columns beyond the edge", np.random.default_rng(4)
    while (found := drawn(case, rng))[1] != 2:
        pass
    made, (old, new) = emit(found[0]), SPOILT[name]
    assert old in made.source
    spoilt = CudaProgram(**{**vars(made), "source": made.source.replace(old, new)})
    with pytest.raises((EmulatorError, AssertionError)):
        run_on(case, spoilt, rng)


def test_what_is_refused() -> None:
    """Shares that do not come out even, and sums of integers."""
    sketch = next(s for s in split("columns beyond the edge") if parts_of(s) == 2)
    space = space_of(sketch, TARGET, HARDWARE)
    state = concrete(home(space), row_of(space, np.array([4, 1, 1, 9, 4])), TARGET, HARDWARE)
    with pytest.raises(EmitError, match="2 to 8 blocks add up a part of the terms each"):
        emit(te.lower(state, CASES["columns beyond the edge"]))


def test_estimates_choose_them_for_long_sums_alone() -> None:
    def best(args: list[Tensor]) -> int:
        machine, found = machine_of(TARGET, HARDWARE), []
        for sketch in rings(args):
            space = space_of(sketch, TARGET, HARDWARE)
            for point in table(products(sketch)[0], HARDWARE).points:
                made = program(home(space), row_of(space, point), TARGET, HARDWARE)
                found.append((float(seconds(made, machine)[0]), parts_of(sketch)))
        return min(found)[1]

    assert best(product(197, 3072, 768, b="nk")) == 1
