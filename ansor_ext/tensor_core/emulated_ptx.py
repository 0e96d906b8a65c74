"""Inline PTX of tensor cores as C++ of the block emulator (`codegen_cuda/emulation/emulator_ptx.py`).

Instructions take their meaning from the table (`mma.py`): sizes, elements and maps are written into the C++ where the
instruction stands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from codegen_cuda.emulation.emulator_ptx import unknown
from codegen_cuda.emulation.inline_ptx import Address, Instruction, Vector

from .fragment import Digit, Fragment
from .mma import F32, LOADS, MMA, Element, MatrixLoad, Mma

_ONE = Digit(1, 0, 0)
_BY_PTX = {op.ptx: op for op in MMA.values() if op.of_parts == op and op.warps == 1 and not op.chained}
_OF_GROUPS = [op for op in MMA.values() if op.of_parts == op and op.warps > 1]
_ORDER = ("fence.proxy.async.shared::cta", "wgmma.fence.sync.aligned")
_LOAD_BY_PTX = {form.ptx: form for form in LOADS}
TURNED = 3
"""Options of a product before those that say whether the tiles of A and of B are turned."""


def emulated_instruction(x: Instruction) -> str | None:
    """The C++ of an instruction; None for one that is not of tensor cores."""
    match x.name, x.operands:
        case name, (Vector(d), Vector(a), Vector(b), Vector(c)) if name in _BY_PTX:
            return _multiply(_BY_PTX[name], d, a, b, c)
        case name, (Vector(d), Vector() | str() as a, str(tile), *options) if name.startswith("wgmma.mma_async."):
            turned = isinstance(a, str) and options[TURNED:] == ["1", "0"]
            held = [] if isinstance(a, str) else _words(a.items)
            factor = a if isinstance(a, str) else [f"emu_a[{k}]" for k in range(len(held))]
            product = _multiply_tile(name, d, factor, tile, turned, added=options[0] == "1")
            kept = f"const uint32_t emu_a[] = {{{', '.join(held)}}}; " if held else ""
            return f"{kept}emu_begin([=] {{ {product} }});"
        case name, _ if name in _ORDER:
            return ""
        case "wgmma.commit_group.sync.aligned", ():
            return "emu_product_commit();"
        case "wgmma.wait_group.sync.aligned", (str(count),):
            return f"emu_product_wait({count});"
        case name, (Vector(d), Address(row)) if name in _LOAD_BY_PTX:
            return _load(_LOAD_BY_PTX[name], d, row)
        case "cvt.rna.tf32.f32", (str(to), str(value)):
            return f"emu_put({to}, emu_tf32({value}));"
        case "min.xorsign.abs.f32", (str(to), str(a), str(b)):
            return f"{to} = emu_min_xorsign({a}, {b});"
    return None


def _multiply_tile(name: str, d: tuple[str, ...], a: list[str] | str, tile: str, turned: bool, added: bool) -> str:
    """A product with a tile in shared memory, `added` to `d` or stored there: of 8 columns at a time, whose fragments
    are read there, as are those of `a` where it is a tile, too, and not words of this lane."""
    found = [(op, n) for op in _OF_GROUPS for n in [8 * len(d) // op.registers("d")] if replace(op, n=n).ptx == name]
    if not found:
        return unknown(name)
    op, columns = found[0]
    words = _rows_of(a, op, turned) if isinstance(a, str) else a
    parts = []
    for tile_number in range(columns // op.n):
        sums = d[tile_number * op.registers("d") :][: op.registers("d")]
        b = [f"emu_tile_word({tile}, {tile_number}, {k})" for k in range(op.registers("b"))]
        parts.append(f"{{ {_handed(op, sums, words, b, None if added else ('0u',) * len(sums))} }}")
    return " ".join(parts)


def _multiply(op: Mma, d: tuple[str, ...], a: tuple[str, ...], b: tuple[str, ...], c: tuple[str, ...]) -> str:
    return _handed(op, d, _words(a), _words(b), c)


def _words(registers: Sequence[str]) -> list[str]:
    return [f"emu_word({x})" for x in registers]


def _rows_of(descriptor: str, op: Mma, turned: bool) -> list[str]:
    """The words of this lane of a tile of 16 rows for each warp: of 8 of the rows and 16 bytes of terms each."""
    function = "emu_turned_word" if turned else "emu_tile_word"
    eights = [(f"(int)(threadIdx.y & 3) * 2 + {k % 2}", k // 2) for k in range(op.registers("a"))]
    return [f"{function}({descriptor}, {rows}, {terms})" for rows, terms in eights]


def _handed(op: Mma, d: tuple[str, ...], a: Sequence[str], b: Sequence[str], c: tuple[str, ...] | None = None) -> str:
    """What a lane hands over, registers of A and B as texts of words, and what it gets; C is `d` where it is not
    given."""
    fragments = ", ".join(_fragment(f) for f in (op.a, op.b, op.d))
    table = f"{{{op.m}, {op.n}, {op.k}, {_element(op.element)}, {_element(op.sum)}, {fragments}}}"
    words = ", ".join("{" + ", ".join(part) + "}" for part in (a, b, _words(c or d)))
    return f"static const EmuMma emu_op = {table}; EmuMmaLane emu_lane = {{&emu_op, {words}}}; " + _together("MMA", d)


def _load(form: MatrixLoad, d: tuple[str, ...], row: str) -> str:
    table = f"{{{form.count}, {_fragment(form.fragment(2))}}}"
    lane = f"{{&emu_form, emu_row({row}, {form.count})}}"
    return f"static const EmuLoad emu_form = {table}; EmuLoadLane emu_lane = {lane}; " + _together("LOAD", d)


def _together(what: str, d: tuple[str, ...]) -> str:
    """The call that all lanes of a warp make, and their results."""
    results = " ".join(f"emu_put({x}, emu_lane.d[{i}]);" for i, x in enumerate(d))
    return f"emu_together(EMU_{what}, __LINE__, &emu_lane); {results}"


def _element(element: Element) -> str:
    hidden = F32.fraction - element.fraction if element.dtype == F32.dtype else 0
    return f"{{EMU_{element.dtype.upper()}, {element.nbytes}, {hidden}}}"


def _fragment(f: Fragment) -> str:
    lane, value = [", ".join(map(_digit, (*digits, *[_ONE] * (3 - len(digits))))) for digits in (f.lane, f.value)]
    return f"{{{f.values}, {{{lane}}}, {{{value}}}}}"


def _digit(d: Digit) -> str:
    return f"{{{d.extent}, {d.row}, {d.column}}}"
