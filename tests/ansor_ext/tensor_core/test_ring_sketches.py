"""Sketches with rings: what has them, draws that are right and compile, and which lengths are estimated best."""

from __future__ import annotations

import shutil
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
from te_lite.schedule.stage_steps import RFactor
from te_lite.schedule.state import State
from tests.ansor_ext.tensor_core.mma_schedules import nearest_tf32
from tests.codegen_cuda.gpu_nests import HAVE_COMPILER
from tests.nonempty import nonempty

TARGET = Target("cuda -model=H200 -arch=sm_90a")
TF32 = Target("cuda -model=H200 -arch=sm_90a -precision=tf32")
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


def convolution(n: int, h: int, w: int, ci: int, co: int, kh: int, kw: int, dtype: str = "float16") -> list[Tensor]:
    """Images NHWC, with zeros around them, under filters HWIO."""
    x = te.placeholder((n, h, w, ci), name="X", dtype=dtype)
    f = te.placeholder((kh, kw, ci, co), name="F", dtype=dtype)
    return [x, f, topi.cast(topi.nn.conv2d_nhwc(x, f, 1, (kh // 2, kw // 2), 1, out_dtype="float32"), dtype)]


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
    "filters of 1 x 1 on all pixels": convolution(2, 7, 9, 136, 64, 1, 1),
    "filters of 3 x 3": convolution(1, 4, 56, 72, 64, 3, 3),
    "filters of 1 x 5, bfloat16": convolution(2, 2, 70, 128, 64, 1, 5, "bfloat16"),
    "tf32": product(150, 136, 200, "float32", b="nk"),
    "tf32, a batch, with bias and relu": with_bias_and_relu(product(70, 72, 68, "float32", b="nk", batch=2)),
}


def inputs(args: list[Tensor], rng: np.random.Generator) -> list[np.ndarray]:
    out = []
    for t in args[:-1]:
        shape = [int(n) for n in t.shape]
        kind = ml_dtypes.bfloat16 if t.dtype == "bfloat16" else t.dtype
        drawn = rng.integers(-128, 128, shape) if kind == "int8" else rng.standard_normal(shape)
        out.append(drawn.astype(kind))
    return out


def exact(args: list[Tensor], arrays: list[np.ndarray]) -> np.ndarray:
    """The result in float64, from the shapes alone; of floats as the copy engine rounds them."""
    read = nearest_tf32 if arrays[0].dtype == "float32" else np.asarray
    a, b = [read(x).astype(np.float64) for x in arrays[:2]]
    if a.ndim == b.ndim == 4:
        (kh, kw), (h, w) = b.shape[:2], a.shape[1:3]
        padded = np.pad(a, ((0, 0), (kh // 2, kh // 2), (kw // 2, kw // 2), (0, 0)))
        return np.sum([padded[:, y : y + h, x : x + w] @ b[y, x] for y in range(kh) for x in range(kw)], axis=0)
    m, n = [int(x) for x in args[-1].shape[-2:]]
    a = a if a.shape[-2] == m else np.swapaxes(a, -1, -2)
    b = b if b.shape[-1] == n else np.swapaxes(b, -1, -2)
    return a @ b if len(arrays) == 2 else np.maximum(a @ b + arrays[2], 0)


def target_of(name: str) -> Target:
    return TF32 if "tf32" in name else TARGET


@cache
def sketches_of(name: str) -> list[State]:
    return rings(CASES[name], target_of(name))


@emulated
@pytest.mark.parametrize("draw", range(20))
@pytest.mark.parametrize("name", CASES)
@pytest.mark.one_in(30)
def test_draws_are_right_and_compile(name: str, draw: int) -> None:
    args, rng, found, target = CASES[name], np.random.default_rng(draw), sketches_of(name), target_of(name)
    sketch = found[draw % len(found)]
    points = table(products(sketch)[0], HARDWARE).points
    space, point = space_of(sketch, target, HARDWARE), points[rng.integers(len(points))]
    made = emit(te.lower(concrete(home(space), row_of(space, point), target, HARDWARE), args))
    assert "ring_open" in made.source
    arrays, dtype = inputs(args, rng), args[-1].dtype
    out = np.full([int(n) for n in args[-1].shape], 77, ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    run_program(made, [*arrays, out])
    want, unit = exact(args, arrays), UNITS[dtype]
    assert (np.abs(out.astype(np.float64) - want) <= unit * np.abs(want) + 1e-3 * (unit > 0)).all()
    if HAVE_COMPILER:
        assert not [r for r in compile_source(made.source, "sm_90").resources if r.spill_stores]


def test_only_hopper_and_factors_that_lie_in_rows_have_rings() -> None:
    """With terms for two turns, rows that begin at multiples of 16 bytes, and nothing computed on the way."""
    half = product(256, 256, 256)
    assert [products(s)[0].shared[0].tiles for s in rings(half)[:2]] == [4, 8]
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
    a, b = [te.placeholder((256, 256), name=x, dtype="float16") for x in "XY"]
    r = te.reduce_axis((0, 256), "r")
    x = te.compute((256, 256), lambda i, j: a[i, j] * a[i, j], name="S")
    c = te.compute((256, 256), lambda i, j: te.sum(te.cast("float32", x[i, r]) * te.cast("float32", b[r, j]), axis=r))
    assert not rings([a, b, c])


def test_floats_have_rings_in_tf32_whose_terms_are_neighbours() -> None:
    """On Hopper, with 32 terms of 128 bytes a turn, and in no other precision."""
    args = product(256, 256, 256, "float32", b="nk")
    found = rings(args, TF32)
    assert [products(s)[0].shared[0].tiles for s in found[:2]] == [4, 8]
    assert {products(s)[0].op.name for s in found} == {"wgmma_k8_tf32_f32_nearest"}
    assert {int(x) for s in found for x in table(products(s)[0], HARDWARE).points[:, -1]} == {4}
    for text in ("-model=H200", "-model=H200 -precision=fp32x3", "-model=A100 -precision=tf32"):
        assert not rings(args, Target(f"cuda {text}"))
    for a, b in nonempty([("mk", "kn"), ("km", "nk"), ("km", "kn")]):
        assert not rings(product(256, 256, 256, "float32", a, b), TF32)
    others = [s for s in extra_sketches(ComputeDAG(args), TF32, HARDWARE) if s not in found]
    assert not any(p.op.element.nearest for s in nonempty(others) for p in products(s) if not p.shared[0].in_boxes)


def test_sums_are_split_where_large_blocks_are_few() -> None:
    def parts(m: int, n: int, k: int) -> list[State]:
        return [s for s in rings(product(m, n, k)) if any(isinstance(step, RFactor) for step in s.steps)]

    assert parts(384, 1536, 6144) and not parts(4096, 4096, 4096)


def test_the_best_lengths_of_an_h200_are_estimated_best() -> None:
    """Rows and columns of a block that were fastest when all lengths were measured."""
    machine = machine_of(TARGET, HARDWARE)
    for (m, n, k), best in nonempty({(4096, 4096, 4096): (128, 256), (1024, 1024, 1024): (64, 128)}.items()):
        found = []
        for sketch in rings(product(m, n, k)):
            space = space_of(sketch, TARGET, HARDWARE)
            for point in table(products(sketch)[0], HARDWARE).points:
                made = program(home(space), row_of(space, point), TARGET, HARDWARE)
                found.append((float(seconds(made, machine)[0]), (int(point[0]) * 16, int(point[3]) * 8)))
        assert min(found)[1] == best, sorted(found)[:4]


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
