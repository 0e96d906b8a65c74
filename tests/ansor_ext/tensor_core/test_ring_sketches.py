"""Sketches with rings: what has them, draws that are right and compile, and which lengths are estimated best."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import cache

import ml_dtypes
import numpy as np
import pytest

import te_lite as te
from ansor.analytical import machine_of, seconds
from ansor.core.target.hardware import HardwareParams
from ansor.core.target.target import Target
from ansor.sketch.generate import extra_sketches
from ansor.space.decisions.decision import Choice, Grid
from ansor.space.programs import program
from ansor.space.spaces import Space, home, space_of
from ansor.space.states import concrete
from ansor_ext.tensor_core.warp_tiles import products, table
from codegen_cuda import compile_source, emit
from codegen_cuda.emulation.emulator import run_program
from te_lite import ComputeDAG, Tensor, topi
from te_lite.schedule.replay import replay
from te_lite.schedule.stage_steps import RFactor
from te_lite.schedule.state import State
from te_lite.schedule.step import from_json, to_json
from tests.ansor_ext.tensor_core.mma_schedules import nearest_tf32
from tests.codegen_cuda.gpu_nests import HAVE_COMPILER
from tests.nonempty import nonempty

TARGET = Target("cuda -model=H200 -arch=sm_90a")
TF32, FP32X3 = [Target(f"cuda -model=H200 -arch=sm_90a -precision={x}") for x in ("tf32", "fp32x3")]
HARDWARE = HardwareParams(target=TARGET).completed(TARGET)
UNITS = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24, "int32": 0.0}
emulated = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not on PATH: kernels cannot be emulated")


def product(
    m: int, n: int, k: int, dtype: str = "float16", a: str = "mk", b: str = "kn", batch: int = 0
) -> list[Tensor]:
    """A and B whose axes lie as they are named, and their product, rounded to the dtype."""
    sizes, lead = {"m": m, "n": n, "k": k}, (batch,) if batch else ()
    shapes = [(*lead, *[sizes[x] for x in axes]) for axes in (a, b)]
    factors = [te.placeholder(shape, name=name, dtype=dtype) for name, shape in zip("AB", shapes, strict=True)]
    total, r = "int32" if dtype == "int8" else "float32", te.reduce_axis((0, k), "k")

    def term(*at: te.Expr) -> te.Expr:
        place = {"m": at[-2], "n": at[-1], "k": r}
        x, y = [t[(*at[:-2], *[place[c] for c in axes])] for t, axes in zip(factors, (a, b), strict=True)]
        return te.sum(te.cast(total, x) * te.cast(total, y), axis=r)

    sums = te.compute((*lead, m, n), term, name="C")
    return [*factors, sums if dtype == "int8" else topi.cast(sums, dtype)]


def with_bias_and_relu(args: list[Tensor]) -> list[Tensor]:
    a, b, c = args
    z = te.placeholder((c.shape[-1],), name="Z", dtype="float32")
    (sums,) = c.op.input_tensors()

    def value(*at: te.Expr) -> te.Expr:
        x = sums(*at) + z[at[-1]]
        return te.cast(c.dtype, te.if_then_else(x > 0.0, x, 0.0))

    return [a, b, z, te.compute(c.shape, value, name="D")]


def scaled(m: int, n: int, k: int, dtypes: tuple[str, str], out: str, by_rows: bool = True) -> list[Tensor]:
    """Floats of 8 bits, [m, k] and [n, k], and their product times scales: of each row and column, or one of each."""
    a, b = [te.placeholder((s, k), name=x, dtype=t) for x, s, t in zip("AB", (m, n), dtypes, strict=True)]
    x, y = [te.placeholder((s if by_rows else 1,), name=name, dtype="float32") for name, s in (("X", m), ("Y", n))]
    r = te.reduce_axis((0, k), "k")
    c = te.compute((m, n), lambda i, j: te.sum(te.cast("float32", a[i, r]) * te.cast("float32", b[j, r]), axis=r))

    def value(i: te.Expr, j: te.Expr) -> te.Expr:
        return te.cast(out, c[i, j] * (x[i] * y[j] if by_rows else x[0] * y[0]))

    return [a, b, x, y, te.compute((m, n), value, name="D")]


def convolution(n: int, h: int, w: int, ci: int, co: int, kh: int, kw: int, dtype: str = "float16") -> list[Tensor]:
    """Images NHWC, with zeros around them, under filters HWIO."""
    x = te.placeholder((n, h, w, ci), name="X", dtype=dtype)
    f = te.placeholder((kh, kw, ci, co), name="F", dtype=dtype)
    return [x, f, topi.cast(topi.nn.conv2d_nhwc(x, f, 1, (kh // 2, kw // 2), 1, out_dtype="float32"), dtype)]


def of_heads(texts: int, heads: int, tokens: int, n: int) -> list[Tensor]:
    """What attention leaves of each head, tokens of 64 elements, and the product of all heads of a token."""
    x = te.placeholder((texts * heads, tokens, 64), name="X", dtype="float16")
    w = te.placeholder((heads * 64, n), name="W", dtype="float16")
    rows = te.compute((texts * tokens, heads * 64), lambda i, k: x[i // tokens * heads + k // 64, i % tokens, k % 64])
    return [x, w, topi.cast(topi.nn.matmul(rows, w, out_dtype="float32"), "float16")]


def rings(args: list[Tensor], target: Target = TARGET) -> list[State]:
    """The sketches whose tiles the copy engine fetches."""
    found = extra_sketches(ComputeDAG(args), target, HardwareParams(target=target))
    return [s for s in found if any(p.shared[0].in_boxes for p in products(s))]


def row_of(space: Space, point: np.ndarray) -> np.ndarray:
    row = np.zeros(space.width, np.int64)
    for part in space.parts:
        match part:
            case Grid():
                row[part.columns] = point
            case Choice(values=values):
                row[part.columns] = min(values)
    return row


CASES = {
    "rows beyond the edge": product(197, 136, 200),
    "bytes": product(130, 144, 400, "int8", b="nk"),
    "brain floats, across": product(88, 200, 192, "bfloat16", a="km"),
    "along, with bias and relu": with_bias_and_relu(product(150, 200, 136, b="nk")),
    "a batch": product(70, 72, 136, b="nk", batch=3),
    "a long sum": product(64, 128, 1024),
    "heads of texts": of_heads(3, 4, 50, 136),
    "float8, scales": scaled(130, 152, 400, ("float8_e4m3fn",) * 2, "float16", by_rows=False),
    "float8, scales of rows": scaled(197, 136, 272, ("float8_e5m2",) * 2, "bfloat16"),
    "float8 of two kinds": scaled(64, 200, 400, ("float8_e5m2", "float8_e4m3fn"), "float32"),
    "float8 of two kinds, more columns": scaled(200, 40, 272, ("float8_e4m3fn", "float8_e5m2"), "float16"),
    "filters of 1 x 1 on all pixels": convolution(2, 7, 9, 136, 64, 1, 1),
    "filters of 3 x 3": convolution(1, 4, 56, 72, 64, 3, 3),
    "filters of 1 x 5, bfloat16": convolution(2, 2, 70, 128, 64, 1, 5, "bfloat16"),
    "tf32": product(150, 136, 200, "float32", b="nk"),
    "tf32, a batch, with bias and relu": with_bias_and_relu(product(70, 72, 68, "float32", b="nk", batch=2)),
    "tf32, B copied": product(150, 136, 200, "float32"),
    "tf32, both copied, a batch": product(70, 72, 132, "float32", a="km", batch=2),
    "tf32, B copied, a long sum": product(64, 128, 1024, "float32"),
    "tf32, filters of 3 x 3 copied": convolution(1, 2, 56, 68, 64, 3, 3, "float32"),
    "fp32x3": with_bias_and_relu(product(150, 136, 200, "float32", b="nk")),
    "fp32x3, across": product(130, 72, 100, "float32"),
    "fp32x3, both across, a batch": product(70, 72, 132, "float32", a="km", batch=2),
    "fp32x3, a long sum": product(64, 128, 1024, "float32"),
}


def inputs(args: list[Tensor], rng: np.random.Generator) -> list[np.ndarray]:
    out = []
    for t in args[:-1]:
        shape = [int(n) for n in t.shape]
        kind = ml_dtypes.bfloat16 if t.dtype == "bfloat16" else t.dtype
        drawn = rng.integers(-128, 128, shape) if kind == "int8" else rng.standard_normal(shape)
        out.append(drawn.astype(kind))
    return out


def exact(args: list[Tensor], arrays: list[np.ndarray], whole: bool = False) -> np.ndarray:
    """The result in float64, from the shapes alone; of floats as the copy engine rounds them, unless `whole`."""
    read = nearest_tf32 if arrays[0].dtype == "float32" and not whole else np.asarray
    a, b = [read(x).astype(np.float64) for x in arrays[:2]]
    if a.ndim == b.ndim == 4:
        (kh, kw), (h, w) = b.shape[:2], a.shape[1:3]
        padded = np.pad(a, ((0, 0), (kh // 2, kh // 2), (kw // 2, kw // 2), (0, 0)))
        return np.sum([padded[:, y : y + h, x : x + w] @ b[y, x] for y in range(kh) for x in range(kw)], axis=0)
    if a.ndim > b.ndim:
        each = a.reshape(-1, b.shape[0] // a.shape[2], *a.shape[1:])
        a = np.moveaxis(each, 1, 2).reshape(-1, b.shape[0])
    if len(arrays) == 4:
        return a @ b.T * arrays[2].astype(np.float64)[:, None] * arrays[3]
    m, n = [int(x) for x in args[-1].shape[-2:]]
    a = a if a.shape[-2] == m else np.swapaxes(a, -1, -2)
    b = b if b.shape[-1] == n else np.swapaxes(b, -1, -2)
    return a @ b if len(arrays) == 2 else np.maximum(a @ b + arrays[2], 0)


def target_of(name: str) -> Target:
    return TF32 if "tf32" in name else FP32X3 if "fp32x3" in name else TARGET


@cache
def sketches_of(name: str) -> list[State]:
    return rings(CASES[name], target_of(name))


def drawn(name: str, draw: int, rng: np.random.Generator) -> te.LoweredFunc:
    """A program of a case: one of its sketches, in lengths that are drawn."""
    found, target = sketches_of(name), target_of(name)
    sketch = found[draw % len(found)]
    points = table(products(sketch)[0], HARDWARE).points
    space, point = space_of(sketch, target, HARDWARE), points[rng.integers(len(points))]
    return te.lower(concrete(home(space), row_of(space, point), target, HARDWARE), CASES[name])


Run = Callable[..., object]
"""What runs a program on arrays."""


def assert_right(name: str, rng: np.random.Generator, run: Run) -> None:
    args = CASES[name]
    arrays, dtype, whole = inputs(args, rng), args[-1].dtype, target_of(name) is FP32X3
    out = np.full([int(n) for n in args[-1].shape], 77, ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    run(*arrays, out)
    want, unit = exact(args, arrays, whole), UNITS[dtype]
    size = (3e-5 if whole else 1e-3) * (unit > 0)
    assert (np.abs(out.astype(np.float64) - want) <= unit * np.abs(want) + size).all()


@emulated
@pytest.mark.parametrize("draw", range(20))
@pytest.mark.parametrize("name", CASES)
@pytest.mark.one_in(120)
def test_draws_are_right_and_compile(name: str, draw: int) -> None:
    rng = np.random.default_rng(draw)
    made = emit(drawn(name, draw, rng))
    assert "ring_open(b" in made.source or "cluster_open(b" in made.source
    assert_right(name, rng, lambda *arrays: run_program(made, list(arrays)))
    if HAVE_COMPILER:
        assert not [r for r in compile_source(made.source, "sm_90").resources if r.spill_stores]


def test_heads_of_texts_are_fetched_as_windows() -> None:
    """Whose tokens are counted from text to text, where texts are no whole tiles."""
    for tokens, fetched in ((200, "pixels_fetch_4d(map0, "), (256, "box_fetch_3d(map0, ")):
        args = of_heads(3, 4, tokens, 128)
        found = rings(args)
        space = space_of(found[0], TARGET, HARDWARE)
        point = table(products(found[0])[0], HARDWARE).points[-1]
        made = emit(te.lower(concrete(home(space), row_of(space, point), TARGET, HARDWARE), args))
        assert fetched in made.source


def test_only_hopper_and_factors_that_lie_in_rows_have_rings() -> None:
    """With terms for two turns, rows that begin at multiples of 16 bytes, and nothing computed on the way."""
    half = product(256, 256, 256)
    assert [products(s)[0].shared[0].tiles for s in rings(half)[:4]] == [4, 5, 6, 8]  # columns in lines of 64
    rows = {side: [product(m, 256, k, b="nk") for m, k in sizes]
            for side, sizes in {False: [(256, 256), (40, 208)], True: [(256, 200), (256, 264)]}.items()}  # fmt: skip
    for clusters, several in nonempty(rows.items()):  # where rows begin within a sector of 32 bytes
        for args in nonempty(several):
            assert any("blockIdx.y" in str(s.steps) for s in rings(args)) == clusters, args
    for target in ("cuda -arch=sm_80", "cuda -model=A100", "cuda -arch=sm_89"):
        assert not rings(half, Target(target))
    none = (
        product(256, 256, 64),
        product(256, 256, 202),
        product(256, 250, 256),
        product(256, 256, 256, "float32"),
        product(256, 256, 256, "int8"),
        product(256, 32, 256),
    )
    for args in nonempty(none):
        assert not rings(args), args
    found = rings(args := product(20000, 256, 64, b="nk"))  # one turn, but several parts of the result a block
    space, point = space_of(found[0], TARGET, HARDWARE), table(products(found[0])[0], HARDWARE).points[-1]
    made = emit(te.lower(concrete(home(space), row_of(space, point), TARGET, HARDWARE), args))
    assert "ring_open(barriers" in made.source and made.kernels[0].grid == (132, 1, 1)
    a, b = [te.placeholder((256, 256), name=x, dtype="float16") for x in "XY"]
    r = te.reduce_axis((0, 256), "r")
    x = te.compute((256, 256), lambda i, j: a[i, j] * a[i, j], name="S")
    c = te.compute((256, 256), lambda i, j: te.sum(te.cast("float32", x[i, r]) * te.cast("float32", b[r, j]), axis=r))
    assert not rings([a, b, c])


def test_floats_have_rings_in_tf32_whose_terms_are_neighbours() -> None:
    """On Hopper, with 32 terms of 128 bytes a turn, and in no other precision."""
    args = product(256, 256, 256, "float32", b="nk")
    found = rings(args, TF32)
    assert [products(s)[0].shared[0].tiles for s in found[:3]] == [4, 5, 6]
    assert {products(s)[0].op.name for s in found} == {"wgmma_k8_tf32_f32_nearest"}
    assert {int(x) for s in found for x in table(products(s)[0], HARDWARE).points[:, -1]} == {4}
    for text in ("-model=H200", "-model=A100 -precision=tf32", "-model=A100 -precision=fp32x3"):
        assert not rings(args, Target(f"cuda {text}"))
    others = [s for s in extra_sketches(ComputeDAG(args), TF32, HARDWARE) if s not in found]
    assert not any(p.op.element.nearest for s in nonempty(others) for p in products(s) if not p.shared[0].in_boxes)


def test_floats_of_8_bits_may_be_of_two_kinds_whichever_is_rows() -> None:
    dtypes = ("float8_e4m3fn", "float8_e5m2")
    for (m, n), kinds in {(200, 136): "e4m3_e5m2", (400, 40): "e4m3_e5m2", (40, 400): "e5m2_e4m3"}.items():
        found = nonempty(rings(scaled(m, n, 400, dtypes, "float16")))
        assert {products(s)[0].op.name for s in found} == {f"wgmma_k32_{kinds}_f32"}


def copies(sketch: State) -> list[tuple[str, tuple[int, ...]]]:
    """The factors that are copied, and the shapes of their copies."""
    return [(op.name[0], op.output().shape) for op in sketch.ops if op.name.endswith((".global", ".parts"))]


def test_floats_that_lie_across_their_terms_are_copied() -> None:
    """And in fp32x3 the columns in any case, in two parts."""
    b, parts = ("B", (1, 96, 128)), ("B", (2, 1, 96, 128))
    a, turned = ("A", (1, 256, 128)), ("B", (2, 96, 1, 128))
    wanted = {
        (TF32, "mk", "kn"): [b],
        (TF32, "km", "nk"): [a],
        (TF32, "km", "kn"): [a, b],
        (FP32X3, "mk", "kn"): [parts],
        (FP32X3, "mk", "nk"): [turned],
        (FP32X3, "km", "kn"): [a, parts],
    }
    for (target, x, y), made in nonempty(wanted.items()):
        args = product(256, 96, 128, "float32", x, y)
        found = rings(args, target)
        assert found and all(copies(sketch) == made for sketch in found), (x, y)
        space = space_of(found[0], target, HARDWARE)
        point = table(products(found[0])[0], HARDWARE).points[0]
        state = concrete(home(space), row_of(space, point), target, HARDWARE)
        again = replay(state.dag, [from_json(to_json(step)) for step in state.steps])
        assert str(again) == str(state)
    for args in nonempty([product(256, 96, 130, "float32"), product(256, 96, 32, "float32")]):
        assert not rings(args, TF32) and not rings(args, FP32X3)


@emulated
def test_parts_are_as_exact_as_promised() -> None:
    made = emit(drawn(HOSTILE, 0, np.random.default_rng(4)))
    assert_as_exact_as_promised(lambda *arrays: run_program(made, list(arrays)))


HOSTILE = "fp32x3, across"


def assert_as_exact_as_promised(run_on: Run) -> None:
    """Of mixed magnitudes, infinities and NaN, as `test_floats_in_parts.py` has it of kernels that cut floats."""
    args, rng = CASES[HOSTILE], np.random.default_rng(4)

    def run(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        out = np.full((130, 72), 77, "float32")
        run_on(a, b, out)
        return out

    a, b = [(x * 2.0 ** rng.integers(-60, 60, x.shape)).astype("float32") for x in inputs(args, rng)]
    a[:, :8] *= np.float32(2.0**-100)
    size, lost = np.abs(a).astype("float64") @ np.abs(b), np.abs(a).sum(axis=1, keepdims=True) + np.abs(b).sum(axis=0)
    off = np.abs(run(a, b) - exact(args, [a, b], whole=True))
    assert (off <= 2.0**-20 * size + 2.0**-126 * lost.astype("float64")).all()

    a, b = inputs(args, rng)
    for place, value in {(0, 3): np.inf, (1, 4): -np.inf, (2, 5): np.nan, (3, 6): 3e38, (4, 7): 1e-40}.items():
        a[place] = value
    b[3, 0], b[4, 1], b[6, 2], b[9, 4], b[10, 5] = 0.0, 1.0, 2e38, -np.inf, np.nan
    with np.errstate(all="ignore"):
        want, out = exact(args, [a, b], whole=True).astype("float32"), run(a, b)
    special = ~np.isfinite(want)
    assert special.any(axis=1).all() and np.array_equal(out[special], want[special], equal_nan=True)
    allowed = np.where(np.abs(want) > 1e30, 2.0**-9 * np.abs(want), 1e-4)  # factors beyond 2^66 are cut to TF32
    assert (np.abs(out[~special] - want[~special]) <= allowed[~special]).all()


def test_sums_are_split_where_large_blocks_are_few() -> None:
    def parts(m: int, n: int, k: int) -> list[State]:
        return [s for s in rings(product(m, n, k)) if any(isinstance(step, RFactor) for step in s.steps)]

    assert parts(384, 1536, 6144) and not parts(4096, 4096, 4096)


def test_the_best_lengths_of_an_h200_are_estimated_best() -> None:
    """Rows and columns of a block that were fastest when all lengths were measured; of the large product also those
    within 2 %, as groups of 64 rows took no turns then."""
    machine = machine_of(TARGET, HARDWARE)
    large, small = {(128, 256), (64, 256)}, {(64, 128)}
    for (m, n, k), best in nonempty({(4096, 4096, 4096): large, (1024, 1024, 1024): small}.items()):
        found = []
        for sketch in rings(product(m, n, k)):
            space = space_of(sketch, TARGET, HARDWARE)
            for point in table(products(sketch)[0], HARDWARE).points:
                made = program(home(space), row_of(space, point), TARGET, HARDWARE)
                found.append((float(seconds(made, machine)[0]), (int(point[0]) * 16, int(point[3]) * 8)))
        assert min(found)[1] in best, sorted(found)[:4]


def test_products_beside_one_with_a_ring_keep_their_groups() -> None:
    """Rows of 250 terms do not begin at multiples of 16 bytes."""
    a, b, c = product(256, 250, 256, b="nk")
    w = te.placeholder((256, 250), name="W", dtype="float16")
    k = te.reduce_axis((0, 250), "k2")
    last = te.compute(
        (256, 256), lambda i, j: te.sum(te.cast("float32", c[i, k]) * te.cast("float32", w[j, k]), axis=k)
    )
    found = [[(p.op.warps, p.shared[0].in_boxes) for p in products(s)] for s in rings([a, b, w, last])]
    assert found and all(sorted(pair) == [(4, False), (4, True)] for pair in found)


def test_images_of_one_line_are_matrices() -> None:
    """As filters of 1 x 1 have them: more blocks than run at a time, whose rows end with the only image."""
    args = convolution(1, 1, 25088, 128, 128, 1, 1)
    for sketch in nonempty(rings(args)):
        space = space_of(sketch, TARGET, HARDWARE)
        points = table(products(sketch)[0], HARDWARE).points
        made = emit(te.lower(concrete(home(space), row_of(space, points[0]), TARGET, HARDWARE), args))
        assert "ring_open" in made.source and made.kernels[0].grid == (132, 1, 1)
