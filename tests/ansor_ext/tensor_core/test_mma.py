"""The table of `mma.sync` and `ldmatrix`: maps are bijections and those of the PTX manual, the meaning is what runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ansor.core.target.target import BIG
from ansor_ext.tensor_core import mma_meaning
from ansor_ext.tensor_core.fragment import Digit, Fragment
from ansor_ext.tensor_core.mma import LOADS, MMA, OPERANDS, MatrixLoad, Mma, chained, mma
from ansor_ext.tensor_core.mma_meaning import execute, gathered, meaning, multiply_add, parts, read, scattered
from te_lite.bounds.loop_scope import LANES
from te_lite.errors import ScheduleError
from te_lite.meaning.interp import run
from tests.ansor_ext.tensor_core.mma_schedules import left_out, multiplied, nearest_tf32

# The maps once more, copied from the formulas of the PTX manual (groupID = lane >> 2, threadID_in_group = lane % 4),
# "Matrix Fragments for mma.m16n8k8", ".m16n8k16" and ".m16n8k32": row and column of value i of a lane.
Formula = Callable[[Any, Any], tuple[Any, Any]]
PTX: dict[str, dict[str, Formula]] = {
    "tf32": {
        "a": lambda lane, i: ((lane >> 2) + 8 * (i & 1), (lane & 3) + 4 * (i >> 1)),
        "b": lambda lane, i: ((lane & 3) + 4 * i, lane >> 2),
    },
    "f16": {
        "a": lambda lane, i: ((lane >> 2) + 8 * (i >> 1 & 1), 2 * (lane & 3) + (i & 1) + 8 * (i >> 2)),
        "b": lambda lane, i: (2 * (lane & 3) + (i & 1) + 8 * (i >> 1), lane >> 2),
    },
    "s8": {
        "a": lambda lane, i: ((lane >> 2) + 8 * (i >> 2 & 1), 4 * (lane & 3) + (i & 3) + 16 * (i >> 3)),
        "b": lambda lane, i: (4 * (lane & 3) + (i & 3) + 16 * (i >> 2), lane >> 2),
    },
}
PTX["bf16"] = PTX["f16"]
SMALL = [f"m16n8k32_{x}_f32" for x in ("e4m3", "e4m3_e5m2", "e5m2_e4m3", "e5m2")]
PTX["e4m3"] = PTX["e5m2"] = PTX["s8"]


def sums(lane: Any, i: Any) -> tuple[Any, Any]:
    return (lane >> 2) + 8 * (i >> 1), 2 * (lane & 3) + (i & 1)


def swapped(fragment: Fragment) -> Fragment:
    """Rows and columns exchanged, where the tile is square; else the two digits of rows and columns of the values."""
    if fragment.rows != fragment.columns:
        return replace(fragment, value=fragment.value[::-1])
    turned = [tuple([Digit(d.extent, d.column, d.row) for d in digits]) for digits in (fragment.lane, fragment.value)]
    return replace(fragment, lane=turned[0], value=turned[1])


def agrees(op: Mma) -> bool:
    """Whether the maps of an instruction are those of the manual; the terms of `chained` ones in their order."""
    lane, value = np.indices((LANES, 16))
    terms = np.array([0, 2, 4, 6, 1, 3, 5, 7]) if op.chained else np.arange(op.k)

    def of_manual(operand: str, formula: Formula, n: int) -> Any:
        row, column = formula(lane[:, :n], value[:, :n])
        return {"a": (row, terms[column % op.k]), "b": (terms[row % op.k], column), "d": (row, column)}[operand]

    return all(
        np.array_equal(fragment.place(lane[:, :n], value[:, :n]), of_manual(operand, formula, n))
        for operand, formula in (*PTX[op.element.ptx].items(), ("d", sums))
        if (fragment := op.fragment(operand)) and (n := fragment.values)
    )


def test_the_maps_are_those_of_the_manual() -> None:
    assert set(MMA) == {
        "m16n8k8_tf32_f32", "m16n8k8_tf32x3_f32", "m16n8k16_f16_f32", "m16n8k16_bf16_f32", "m16n8k16_f16_f16",
        "m16n8k32_s8_s32", "m16n8k8_tf32_f32_chained", "m16n8k8_tf32x3_f32_chained",
        "wgmma_k8_tf32_f32", "wgmma_k16_f16_f32", "wgmma_k16_bf16_f32", "wgmma_k32_s8_s32",
        "wgmma_k8_tf32x3_f32", "wgmma_k8_tf32_f32_nearest", "wgmma_k8_tf32x3_f32_apart",
        "m16n8k32_e4m3_f32", "m16n8k32_e4m3_e5m2_f32", "m16n8k32_e5m2_e4m3_f32", "m16n8k32_e5m2_f32",
        "wgmma_k32_e4m3_f32", "wgmma_k32_e4m3_e5m2_f32", "wgmma_k32_e5m2_e4m3_f32", "wgmma_k32_e5m2_f32",
    }  # fmt: skip
    assert all(agrees(op) for op in MMA.values())
    mixed = "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e5m2", "mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e4m3.f32"
    assert (mma("wgmma_k32_e4m3_e5m2_f32").ptx, mma("m16n8k32_e5m2_e4m3_f32").ptx) == mixed
    assert mma("m16n8k16_f16_f32").ptx == "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
    registers = {name: [op.registers(o) for o in OPERANDS] for name, op in MMA.items()}
    assert registers.pop("m16n8k16_f16_f16") == [4, 2, 2] and set(map(tuple, registers.values())) == {(4, 2, 4)}
    with pytest.raises(ScheduleError, match="no such instruction, known ones are m16n8k8_tf32_f32"):
        mma("m8n8k4")


@pytest.mark.parametrize("operand", OPERANDS)
@pytest.mark.parametrize("name", MMA)
def test_maps_are_bijections(name: str, operand: str) -> None:
    op = MMA[name]
    fragment = op.fragment(operand)
    assert (fragment.rows, fragment.columns) == {"a": (op.m, op.k), "b": (op.k, op.n), "d": (op.m, op.n)}[operand]
    assert fragment.lanes == LANES and fragment.values * LANES == fragment.rows * fragment.columns
    held = np.indices((LANES, fragment.values))
    assert np.array_equal(fragment.holder(*fragment.place(*held)), held)
    tile = np.arange(fragment.rows * fragment.columns).reshape(fragment.rows, fragment.columns)
    assert sorted(scattered(fragment, tile).ravel()) == list(tile.ravel())
    assert np.array_equal(gathered(fragment, scattered(fragment, tile)), tile)


def test_chained_products_have_their_factor_where_the_sums_were() -> None:
    """In the same lanes: of TF32 by an order of the terms of its own, of bytes by none."""
    found = {name: chained(op) for name, op in MMA.items() if op.warps == 1 and not op.chained}
    assert {name: None if x is None else x.name for name, x in found.items()} == {
        "m16n8k8_tf32_f32": "m16n8k8_tf32_f32_chained", "m16n8k8_tf32x3_f32": "m16n8k8_tf32x3_f32_chained",
        "m16n8k16_f16_f32": "m16n8k16_f16_f32", "m16n8k16_bf16_f32": "m16n8k16_bf16_f32",
        "m16n8k16_f16_f16": "m16n8k16_f16_f16", "m16n8k32_s8_s32": None, **dict.fromkeys(SMALL),
    }  # fmt: skip
    for op in [x for x in found.values() if x is not None]:
        lane, value = np.indices((LANES, op.a.values))
        row, column = op.a.place(lane, value)
        assert np.array_equal(op.d.holder(row, column % op.n)[0], lane)


@pytest.mark.parametrize("operand", OPERANDS)
@pytest.mark.parametrize("name", MMA)
def test_wrong_maps_are_caught(name: str, operand: str) -> None:
    op, right = MMA[name], MMA[name].fragment(operand)
    first, second = right.lane
    for wrong in (
        swapped(right),
        replace(right, lane=(second, first)),  # lanes counted along the other side
        replace(right, lane=(replace(first, extent=8), replace(second, extent=4))),
    ):
        assert wrong != right and not agrees(replace(op, **{operand: wrong}))


def operands(op: Mma, rng: np.random.Generator) -> list[np.ndarray]:
    """Random A, B and C."""
    shapes, dtypes = ((op.m, op.k), (op.k, op.n), (op.m, op.n)), (*op.dtypes, op.sum.dtype)
    if op.sum.dtype == "int32":
        return [rng.integers(-128, 128, s).astype(t) for s, t in zip(shapes, dtypes, strict=True)]
    return [rng.standard_normal(s).astype(t) for s, t in zip(shapes, dtypes, strict=True)]


UNIT = {"f32": 2.0**-24, "f16": 2.0**-11}


@pytest.mark.parametrize("name", MMA)
def test_the_loop_nest_is_what_runs_through_the_maps(name: str) -> None:
    op = MMA[name]
    a, b, c = operands(op, np.random.default_rng(1))
    got = gathered(op.d, execute(op, scattered(op.a, a), scattered(op.b, b), scattered(op.d, c)))
    nest = np.full_like(c, 99)
    held = [np.stack(x) for x in mma_meaning.operands(op, a, b)]
    run(meaning(op), [*[x if len(x) > 1 else x[0] for x in held], c, nest])
    x, y = multiplied(op, a, b)
    exact = x @ y + c
    if op.sum.dtype == "int32":
        assert np.array_equal(got, exact) and np.array_equal(nest, exact)
    else:
        size = np.abs(x) @ np.abs(y) + np.abs(c)
        lost = left_out(op.element) * size
        assert (np.abs(got - exact) <= UNIT[op.sum.ptx] * np.abs(exact) * 1.001 + lost).all()
        assert (np.abs(nest - exact) <= 2 * op.k * UNIT[op.sum.ptx] * size + lost).all()


def test_floats_are_the_sum_of_two_parts() -> None:
    """To within the last of 24 bits; the first part is the nearest number of 11 bits, ties away from zero."""
    element, rng = mma("m16n8k8_tf32x3_f32").element, np.random.default_rng(4)
    drawn = (rng.standard_normal(10_000) * 2.0 ** rng.integers(-60, 60, 10_000)).astype("float32")
    special = np.array([1 + 2.0**-11, -1 - 2.0**-11, 1 + 3 * 2.0**-11, 0.0, 2.0**-130, 2.0**-149, 3.4e38], "float32")
    x = np.concatenate([drawn, special])
    big, small = parts(element, x)
    significand, exponent = np.frexp(x.astype("float64"))
    want = np.ldexp(np.sign(x) * np.floor(np.abs(significand) * 2.0**11 + 0.5), exponent - 11)
    normal = (np.abs(x) > 2.0**-120) & (np.abs(x) < BIG)
    assert np.array_equal(big[normal], want[normal]) and np.array_equal(read(element, big), big)
    error = np.where(np.abs(x) < BIG, 2.0**-23, 2.0**-10) * np.abs(x) + 2.0**-126
    assert (np.abs(x.astype("float64") - big - small) <= error).all()
    assert np.array_equal(read(element, small), small) and np.isfinite(big).all()


def test_floats_in_parts_are_infinite_and_nan_as_floats_are() -> None:
    """Also where the other factor has no small part, or one of another sign, and where finite ones overflow."""
    rng = np.random.default_rng(5)
    drawn = rng.standard_normal(57) * 2.0 ** rng.integers(-90, 128, 57)
    values = np.array([np.inf, -np.inf, np.nan, 0.0, 1.0, -1 / 3, 3e38, *drawn], "float32")
    op, a, b = mma("m16n8k8_tf32x3_f32"), np.zeros((4, 16, 8), "float32"), np.zeros((8, 1, 8, 8), "float32")
    a[..., 3], b[:, 0, 3] = values.reshape(4, 16), values.reshape(8, 8)
    with np.errstate(all="ignore"):
        got = multiply_add(op, a, b, np.zeros((16, 8), "float32")).transpose(1, 2, 0, 3).reshape(64, 64)
        want = np.multiply.outer(values, values)
    assert np.isinf(want).sum() > 200 and np.array_equal(np.isnan(got), np.isnan(want))
    assert np.array_equal(got[np.isinf(want)], want[np.isinf(want)])
    cut = np.maximum.outer(*[np.where(np.abs(values) < BIG, 2.0**-21, 2.0**-9)] * 2)
    lost = 2.0**-126 * (1 + np.maximum.outer(np.abs(values), np.abs(values)))
    finite = np.isfinite(want)
    assert (np.abs(got[finite] - want[finite].astype("float64")) <= (cut * np.abs(want) + lost)[finite]).all()


def test_tf32_loses_nothing_on_average() -> None:
    """11 bits stay as they are, and what is not finite, also a NaN all of whose bits are set."""
    element, rng = mma("m16n8k8_tf32_f32").element, np.random.default_rng(2)
    exact = np.concatenate([np.arange(-2048, 2049), 2.0 ** np.arange(-136, 128)]).astype("float32")
    assert np.array_equal(parts(element, exact)[0], exact)
    special = np.array([0x7F800000, 0xFF800000, 0x7FFFFFFF, 0xFFFFFFFF], np.uint32).view("float32")
    assert np.array_equal(parts(element, special)[0], special, equal_nan=True)
    x = rng.standard_normal(100_000).astype("float32")
    centred, cut = [(got.astype("float64") - x) / x for got in (parts(element, x)[0], read(element, x))]
    assert np.abs(centred).max() <= 0.65 * 2.0**-10 and np.abs(cut).max() > 0.95 * 2.0**-10
    assert abs(centred.mean()) < 0.02 * 2.0**-10 and cut.mean() < -0.3 * 2.0**-10
    half = np.array([1.5, -2.0], np.float16)
    assert parts(mma("m16n8k16_f16_f32").element, half)[0] is half


def test_nearest_floats_are_rounded_to_even() -> None:
    """Ties, denormal numbers and the largest ones, too; infinities stay, and what is no number stays none."""
    element, rng = mma("wgmma_k8_tf32_f32_nearest").element, np.random.default_rng(6)
    drawn = rng.integers(0, 1 << 32, 100_000, np.uint64).astype(np.uint32)
    ties = drawn[:10_000] & 0xFFFFF000
    edges = [0, 1 << 31, 1, 0xFFF, 0x1000, 0x1001, 0x3000, 0x7FF000, 0x7F7FEFFF, 0x7F7FF000, 0xFF7FFFFF, 0x7F800000]
    bits = np.concatenate([drawn, ties, ties + 1, ties - 1, np.array(edges, np.uint32)])
    nans = np.array([0x7FC00000, 0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001], np.uint32)
    x = np.concatenate([bits, nans]).view("float32")
    (got,) = parts(element, x)
    number = ~np.isnan(x)
    assert np.array_equal(got, nearest_tf32(x), equal_nan=True)
    assert np.array_equal(np.signbit(got[number]), np.signbit(x[number]))
    assert np.array_equal(read(element, got), got, equal_nan=True)
    assert np.isinf(got).sum() > np.isinf(x).sum() and (ties != nearest_tf32(ties.view("float32")).view("u4")).any()


def test_integer_sums_wrap() -> None:
    op = mma("m16n8k32_s8_s32")
    a, b = np.full((16, 32), -128, np.int8), np.full((32, 8), -128, np.int8)
    got = multiply_add(op, a, b, np.full((16, 8), 2**31 - 1, np.int32))
    assert (got == -(2**31) + 32 * 2**14 - 1).all()


# -------------------------------------------------------------------------------------------------------- ldmatrix


def load(form: MatrixLoad, nbytes: int, rows: np.ndarray) -> np.ndarray:
    """What the lanes get of rows[8 * count, 16 bytes], by the manual: register i of lane l has bytes 4*(l % 4) and the
    three behind them of row l // 4 of matrix i; transposed, the elements at column l // 4 of rows 2*(l % 4) and
    2*(l % 4) + 1."""
    out = np.empty((LANES, form.count, 4), np.uint8)
    for lane in range(LANES):
        for i in range(form.count):
            matrix = rows[8 * i : 8 * i + 8].view(np.uint8).reshape(8, 16)
            if form.transposed:
                pair = matrix.view(np.uint16)[2 * (lane % 4) : 2 * (lane % 4) + 2, lane // 4]
                out[lane, i] = pair.copy().view(np.uint8)
            else:
                out[lane, i] = matrix[lane // 4, 4 * (lane % 4) : 4 * (lane % 4) + 4]
    return out.view(f"u{nbytes}").reshape(LANES, -1)


@pytest.mark.parametrize(
    ("form", "nbytes"), [(form, n) for form in LOADS for n in (1, 2, 4) if n == 2 or not form.transposed]
)
def test_matrices_arrive_as_the_manual_says(form: MatrixLoad, nbytes: int) -> None:
    rows = np.random.default_rng(3).integers(0, 256, (8 * form.count, 16)).astype(np.uint8)
    elements = rows.view(f"u{nbytes}")
    assert np.array_equal(scattered(form.fragment(nbytes), elements), load(form, nbytes, rows))


LOADED = [(name, operand) for name, op in MMA.items() if not op.chained for operand in "ab"]


def across(operand: str, transposed: bool) -> bool:
    """Whether the elements of a register are neighbours in the other direction."""
    return transposed == (operand == "a")


@pytest.mark.parametrize(
    ("name", "operand", "transposed"),
    [(*c, t) for c in LOADED for t in (False, True) if not across(c[1], t) or MMA[c[0]].element.nbytes == 2],
)
def test_fragments_are_loaded_whole(name: str, operand: str, transposed: bool) -> None:
    """From tiles whose rows are contiguous, or, transposed, whose columns are; where a form of `ldmatrix` can."""
    op = MMA[name]
    fragment, element = op.fragment(operand), op.element
    form = MatrixLoad(op.registers(operand), across(operand, transposed))
    lane, value = np.indices((LANES, fragment.values))
    tile = np.arange(fragment.rows * fragment.columns).reshape(fragment.rows, fragment.columns)
    starts = [form.place(fragment, element.nbytes, row) for row in range(8 * form.count)]
    step = np.arange(16 // element.nbytes)
    rows = [tile[r + step, c] if transposed else tile[r, c + step] for r, c in starts]
    assert np.array_equal(scattered(form.fragment(element.nbytes), np.stack(rows)), tile[fragment.place(lane, value)])


def test_addresses_of_the_usual_loads() -> None:
    """Of A with rows along k, and of B with columns along k and rows along n, as kernels by hand compute them."""
    op, lanes = mma("m16n8k16_f16_f32"), range(32)
    assert [MatrixLoad(4).place(op.a, 2, x) for x in lanes] == [((x & 7) + (x & 8), x >> 4 << 3) for x in lanes]
    assert [MatrixLoad(2).place(op.b, 2, x) for x in range(16)] == [(x & 8, x & 7) for x in range(16)]
    assert [MatrixLoad(2, True).place(op.b, 2, x) for x in range(16)] == [(x, 0) for x in range(16)]
    tf32 = mma("m16n8k8_tf32_f32")
    assert [MatrixLoad(4).place(tf32.a, 4, x) for x in lanes] == [((x & 7) + (x & 8), x >> 4 << 2) for x in lanes]
