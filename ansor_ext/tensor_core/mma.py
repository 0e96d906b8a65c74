"""The instructions of tensor cores as data: `mma.sync` of NVIDIA GPUs, one record each.

    D[m, n] = C[m, n] + sum over k of A[m, k] * B[k, n]        D and C in the same registers, or in others

A warp does it together: `a`, `b` and `d` say which lane holds which element (`fragment.py`); B is a tile of k rows and
n columns.  Registers have 32 bits and are filled from the low end: two halves, four bytes, one float.  Programs, the
text of kernels, the block emulator, the interpreter and the figures of the documents all read this table; what an
instruction computes is in `mma_meaning.py`.  Maps: PTX ISA, "Warp-level matrix instructions"; CuTe, mma_traits_sm80.

`wgmma_...` is the same for warps in groups of four (`warps`): each multiplies rows of its own by the same B, which the
tensor cores read from shared memory themselves, so that no fragments of it need be loaded.  Its record is a part of 8
columns, of which the instruction has up to 32; emitters put them together (`warpgroup.py`).

`..._chained` is an instruction again, with its terms numbered otherwise: their sum is the same in any order of those of
A, if those of B have the same.  In this one, A has its elements in the lanes in which D has them, so that sums of one
product are the factor of the next where they are.  Elements of two bytes lie so in the order of the manual.

One record stands for more than one instruction: `m16n8k8_tf32x3_f32` multiplies floats of which each is the sum of two
TF32 parts, by three instructions of TF32 and one addition in float32.

`..._apart` multiplies floats by one part of others, whose parts are stored apart (`float_parts.py`).

`..._nearest` is an instruction whose floats were rounded to the nearest TF32 number before it reads them: on their way
to shared memory, by the copy engine (`ring.py`), which is the only place where it is.

`matrix_load` is `ldmatrix`, which brings fragments from shared memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from te_lite.errors import ScheduleError

from .fragment import Digit, Fragment

OPERANDS = ("a", "b", "d")
ROWS = "rows"
"""What a warp can keep beside operands: one value of each row of `d`, which all lanes with elements of the row have."""
REGISTER_BYTES = 4
ROW_BYTES = 16
"""Of a matrix that `ldmatrix` loads: 8 rows of 16 bytes."""


@dataclass(frozen=True, slots=True)
class Element:
    """A type of elements as PTX names it: the dtype that programs keep it in, its bytes.

    Of a float the instruction reads the sign, the exponent and the `fraction` highest bits of the fraction; one of two
    `parts` becomes two such numbers in registers, those of B are read `apart`.  One that is rounded to the `nearest`
    such number comes so.
    """

    ptx: str
    dtype: str
    nbytes: int
    fraction: int = 0
    parts: int = 1
    nearest: bool = False
    apart: bool = False

    @property
    def name(self) -> str:
        """`tf32`, or `tf32x3` where each product of two parts each is the sum of three."""
        return self.ptx if self.parts == 1 else f"{self.ptx}x{self.parts**2 - 1}"

    @property
    def products(self) -> float:
        """Products of parts that are one of elements: the least two parts are not multiplied.  On average of those by
        parts of B that are read apart."""
        return 1 if self.parts == 1 else (self.parts**2 - 1) / (self.parts if self.apart else 1)


TF32 = Element("tf32", "float32", 4, 10)
TF32X3 = Element("tf32", "float32", 4, 10, parts=2)
TF32X3_APART = replace(TF32X3, apart=True)
TF32_NEAREST = Element("tf32", "float32", 4, 10, nearest=True)
F16 = Element("f16", "float16", 2, 10)
BF16 = Element("bf16", "bfloat16", 2, 7)
F32 = Element("f32", "float32", 4, 23)
S8 = Element("s8", "int8", 1)
S32 = Element("s32", "int32", 4)
E4M3 = Element("e4m3", "float8_e4m3fn", 1)
E5M2 = Element("e5m2", "float8_e5m2", 1)
SMALL = (E4M3, E5M2)
"""Floats of 8 bits, of which an instruction may multiply one kind by the other."""


@dataclass(frozen=True, slots=True)
class Mma:
    """An instruction: sizes, what it multiplies (`element`) and sums up in (`sum`), fragments, the least compute
    capability (80 is sm_80) that has it, how many `warps` execute it together, each for m rows, whether its terms are
    numbered for `chained` products, and what B has if not elements of A's kind (`other`)."""

    m: int
    n: int
    k: int
    element: Element
    sum: Element
    a: Fragment
    b: Fragment
    d: Fragment
    least: int = 80
    warps: int = 1
    chained: bool = False
    other: Element | None = None

    @property
    def name(self) -> str:
        """`m16n8k16_f16_f32`: sizes, elements, sums; `wgmma_k16_f16_f32` of warps in groups."""
        sizes = f"m{self.m}n{self.n}k{self.k}" if self.warps == 1 else f"wgmma_k{self.k}"
        how = (
            "_chained"
            if self.chained
            else "_nearest"
            if self.element.nearest
            else "_apart"
            if self.element.apart
            else ""
        )
        return f"{sizes}_{self.elements}_{self.sum.name}{how}"

    @property
    def elements(self) -> str:
        """What it multiplies: `f16`, or `e4m3_e5m2` where A and B are not alike."""
        return "_".join([x.name for x in (self.element, self.other) if x is not None])

    @property
    def dtypes(self) -> tuple[str, str]:
        """Those of the elements of A and B."""
        return self.element.dtype, self.held("b").dtype

    @property
    def of_parts(self) -> Mma:
        """The instruction for one part of each operand: itself, where elements have one."""
        return replace(self, element=replace(self.element, parts=1, apart=False))

    @property
    def ptx(self) -> str:
        """The instruction without its registers."""
        types = f"{self.sum.ptx}.{self.element.ptx}.{self.held('b').ptx}"
        if self.warps > 1:
            return f"wgmma.mma_async.sync.aligned.m{self.m * self.warps}n{self.n}k{self.k}.{types}"
        types = f"{types}.{self.sum.ptx}"
        return f"mma.sync.aligned.m{self.m}n{self.n}k{self.k}.row.col.{types}"

    def fragment(self, operand: str) -> Fragment:
        """The fragment of operand `a`, `b` or `d`, or of a value for each of the `rows` of `d`."""
        return {"a": self.a, "b": self.b, "d": self.d}[operand] if operand != ROWS else self._rows

    @property
    def _rows(self) -> Fragment:
        lane = tuple([digit if digit.row else replace(digit, column=0) for digit in self.d.lane])
        return Fragment(self.m, 1, lane, tuple([digit for digit in self.d.value if digit.row]))

    def held(self, operand: str) -> Element:
        """What the elements of an operand are."""
        return self.sum if operand == "d" else self.other or self.element if operand == "b" else self.element

    def registers(self, operand: str) -> int:
        """The registers of a thread that hold its part of an operand."""
        return self.fragment(operand).values * self.held(operand).nbytes // REGISTER_BYTES


def _mma(k: int, element: Element, total: Element, other: Element | None = None) -> Mma:
    """The instruction of 16 x 8 x `k`: a register is a group of neighbours along k."""
    group = REGISTER_BYTES // element.nbytes
    along, down = (Digit(group, 0, 1),) if group > 1 else (), (Digit(group, 1, 0),) if group > 1 else ()
    halves = k // (4 * group)
    rows, columns = Digit(8, 1, 0), Digit(8, 0, 1)
    a = Fragment(16, k, (Digit(4, 0, group), rows), (*along, Digit(2, 8, 0), Digit(halves, 0, 4 * group)))
    b = Fragment(k, 8, (Digit(4, group, 0), columns), (*down, Digit(halves, 4 * group, 0)))
    d = Fragment(16, 8, (Digit(4, 0, 2), rows), (Digit(2, 0, 1), Digit(2, 8, 0)))
    least = 89 if element in SMALL else 80
    return Mma(16, 8, k, element, total, a, b, d, least, other=None if other is element else other)


def _chained(k: int, element: Element, total: Element) -> Mma:
    """The instruction of words whose term number q + 4 * h, of lane q, is the term 2 * q + h of the product."""
    op = _mma(k, element, total)
    a = Fragment(op.m, k, op.d.lane, (Digit(2, 8, 0), Digit(2, 0, 1)))
    b = Fragment(k, op.n, (Digit(4, 2, 0), op.b.lane[1]), (Digit(2, 1, 0),))
    return replace(op, a=a, b=b, chained=True)


WARPS = 4
"""Of a group; the first one has a number that is a multiple of it."""
GROUP_ROW_BYTES = 128
"""Of a row of the tile in shared memory that a group reads: the terms of one column."""


def _wgmma(k: int, element: Element, total: Element, other: Element | None = None) -> Mma:
    """8 columns of the instruction of a group of warps: fragments of a warp are those of `mma.sync`."""
    return replace(_mma(k, element, total, other), least=90, warps=WARPS)


MMA = {
    x.name: x for x in (_mma(8, TF32, F32), _mma(8, TF32X3, F32), _mma(16, F16, F32), _mma(16, BF16, F32),
                        _mma(16, F16, F16), _mma(32, S8, S32),
                        _chained(8, TF32, F32), _chained(8, TF32X3, F32),
                        _wgmma(8, TF32, F32), _wgmma(16, F16, F32), _wgmma(16, BF16, F32), _wgmma(32, S8, S32),
                        _wgmma(8, TF32X3, F32), _wgmma(8, TF32_NEAREST, F32),
                        _wgmma(8, TF32X3_APART, F32),
                        *[of(32, a, F32, b) for of in (_mma, _wgmma) for a in SMALL for b in SMALL])
}  # fmt: skip
"""The instructions by name."""


def mma(name: str) -> Mma:
    """The instruction of a name.  Raises ScheduleError, with the names there are, for another."""
    if name not in MMA:
        raise ScheduleError(f"mma {name!r}: there is no such instruction, known ones are {', '.join(MMA)}")
    return MMA[name]


def chained(op: Mma) -> Mma | None:
    """The same instruction whose A has its elements in the lanes of D, so that sums of a product can be the factor of
    another; None where the table has none."""
    same = (x for x in MMA.values() if replace(x, a=op.a, b=op.b, chained=op.chained) == op)
    return next((x for x in same if x.a.lane == x.d.lane), None)


# ------------------------------------------------------------------------------------------------------- ldmatrix


@dataclass(frozen=True, slots=True)
class MatrixLoad:
    """`ldmatrix`: `count` matrices of 8 rows of 16 bytes, whose row r is at the address that lane r gives.

    Register i of a thread is of matrix i.  `transposed` matrices are of elements of 2 bytes.
    """

    count: int
    transposed: bool = False

    @property
    def name(self) -> str:
        """`ldmatrix_x4`, `ldmatrix_x4_trans`."""
        return f"ldmatrix_x{self.count}{'_trans' if self.transposed else ''}"

    @property
    def ptx(self) -> str:
        """The instruction without registers and address."""
        return f"ldmatrix.sync.aligned.m8n8.x{self.count}{'.trans' if self.transposed else ''}.shared.b16"

    def fragment(self, nbytes: int) -> Fragment:
        """Who gets which element, of `nbytes` bytes, of the rows of all matrices below each other."""
        group, columns = REGISTER_BYTES // nbytes, ROW_BYTES // nbytes
        matrices = Digit(self.count, 8, 0)
        if self.transposed:
            return Fragment(8 * self.count, columns, (Digit(4, 2, 0), Digit(8, 0, 1)), (Digit(2, 1, 0), matrices))
        along = (Digit(group, 0, 1),) if group > 1 else ()
        return Fragment(8 * self.count, columns, (Digit(4, 0, group), Digit(8, 1, 0)), (*along, matrices))

    def place(self, wanted: Fragment, nbytes: int, row: Any, column: Any = 0) -> tuple[Any, Any]:
        """The row and column in the tile of the fragment `wanted` of what must stand at these of the matrices."""
        return wanted.place(*self.fragment(nbytes).holder(row, column))


LOADS = tuple([MatrixLoad(count, transposed) for transposed in (False, True) for count in (1, 2, 4)])
"""All forms of `ldmatrix`."""
