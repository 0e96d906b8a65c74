"""Inline PTX of tensor cores as C++ of the block emulator (`codegen_cuda/emulation/emulator_ptx.py`).

Instructions take their meaning from the table (`mma.py`): sizes, elements and maps are written into the C++ where the
instruction stands.  Instructions of Hopper that need no table are functions of their names (`hopper_ptx.h` there).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from codegen_cuda.emulation.emulator_ptx import call, unknown
from codegen_cuda.emulation.inline_ptx import Address, Instruction, Operand, Vector

from .fragment import Digit, Fragment
from .mma import F32, LOADS, MMA, Element, MatrixLoad, Mma

_ONE = Digit(1, 0, 0)
_BY_PTX = {op.ptx: op for op in MMA.values() if op.of_parts == op and op.warps == 1 and not op.chained}
_OF_GROUPS = [op for op in MMA.values() if op.of_parts == op and op.warps > 1]
_AROUND = re.compile(r"[{}]|@!?\w+|\w+:|\.reg|bra")
"""What stands before an instruction, and what C++ has in other words: blocks, predicates, labels, registers, jumps."""
_FUNCTIONS = re.compile(
    r"(mbarrier|mapa|cp\.async\.bulk|fence|bar|barrier|setmaxnreg|elect|prefetch|setp|selp|wgmma|cvt|min)\..*"
)
"""What is a function of its name."""
_SPELLINGS = re.compile(
    r"::cta|(?<=shared)::cluster(?=\.global)|\.(tile|[1-5]d|L2::cache_hint|(rel|acq)\w+\.(cta|cluster))"
    r"|(?<=cluster\.arrive)\.release|(?<=cluster\.wait)\.acquire|(?<=[vsr]e|it)\.aligned$"
)
_REGISTERS = {"%%cluster_ctarank": "emu_cluster_rank()", "%%cluster_nctarank": "emu_cluster_blocks()"}
_LOAD_BY_PTX = {form.ptx: form for form in LOADS}
_READ = {False: "emu_tile_word", True: "emu_turned_word"}
"""What reads a word of a tile that is turned or is not."""


def emulated_instruction(x: Instruction) -> str | None:
    """The C++ of an instruction; None for one that is not of tensor cores."""
    match x.name, x.operands:
        case name, _ if _AROUND.fullmatch(name):
            return _around(x)
        case name, (Vector(d), Vector(a), Vector(b), Vector(c)) if name in _BY_PTX:
            return _handed(_BY_PTX[name], d, *map(_words, (a, b, c)))
        case name, (Vector(d), Vector() | str() as a, str(tile), *options) if name.startswith("wgmma.mma_async."):
            held = [] if isinstance(a, str) else _words(a.items)
            factor = a if isinstance(a, str) else [f"emu_a[{k}]" for k in range(len(held))]
            product = _multiply_tile(name, d, factor, tile, options)
            kept = f"const uint32_t emu_a[] = {{{', '.join(held)}}}; " if held else ""
            return f"{kept}emu_begin(__LINE__, [=] {{ {product} }}, {', '.join(d)});"
        case name, (Vector(d), Address(row)) if name in _LOAD_BY_PTX:
            form = _LOAD_BY_PTX[name]
            return _rows(form, f"emu_row({row}, {form.count})") + _together("LOAD", d)
        case name, (Address(row), Vector(d)) if name.startswith("stmatrix."):
            form = _LOAD_BY_PTX[_SPELLINGS.sub("", name).replace("st", "ld", 1)]
            handed = _rows(form, f"EmuRow(), {{{', '.join(_words(d))}}}") + _together("STORE", ())
            return f"{handed}emu_put_row({row}, {form.count}, emu_lane.row);"
        case name, (Vector(d), Address(place)) if name == f"ld.shared::cluster.v{len(d)}.f32":
            return f"emu_ld_shared_cluster(__LINE__, {place}, {', '.join(d)});"
        case "mov.u32", (str(to), str(register)) if register in _REGISTERS:
            return f"{to} = {_REGISTERS[register]};"
        case name, operands if _FUNCTIONS.fullmatch(name):
            return _function(_SPELLINGS.sub("", name), operands)
    return None


def _around(x: Instruction) -> str:
    """What stands around an instruction, which begins with the first operand."""
    name, _, first = str(x.operands[0] if x.operands else "").partition(" ")
    rest = [Address(first[1:-1]) if first.startswith("[") else first][: len(first)]
    inner = Instruction(name, (*rest, *x.operands[1:]))
    match x.name:
        case "bra":
            return f"goto {name};"
        case ".reg":
            return f"{'bool' if name == '.pred' else 'uint32_t'} {', '.join(map(str, inner.operands))};"
    text = call(inner) if name else ""
    return f"if ({x.name[1:]}) {{ {text} }}" if x.name.startswith("@") else f"{x.name} {text}"


def _function(name: str, operands: Sequence[Operand]) -> str:
    """The call of a function of the emulator's that is named as an instruction."""
    given = [_text(x) for x in operands if x != "_"]
    return f"emu_{re.sub(r'[^a-z0-9]+', '_', name)}({', '.join(['__LINE__', *given])});"


def _text(x: Operand) -> str:
    match x:
        case Address(text=text):
            return text
        case Vector(items=items):
            return f"{{{', '.join(items)}}}"
    return x.removeprefix("_|")


def _multiply_tile(name: str, d: tuple[str, ...], a: list[str] | str, tile: str, options: Sequence[Operand]) -> str:
    """A product with a tile in shared memory, added to `d` or stored there: of 8 columns at a time, whose fragments are
    read there, as are those of `a` where it is a tile, too, and not words of this lane.  Of the options the first says
    whether it is added, those behind the signs whether the tiles, of A where it is one and of B, are turned."""
    found = [(op, n) for op in _OF_GROUPS for n in [8 * len(d) // op.registers("d")] if replace(op, n=n).ptx == name]
    if not found or {*options[1:3]} - {"1"}:
        return unknown(name)
    (op, columns), turned = found[0], [x == "1" for x in options[3:]] or [False]
    words = _rows_of(a, op, turned[0] and len(turned) > 1) if isinstance(a, str) else a
    read = _READ[turned[-1]]
    parts = []
    for tile_number in range(columns // op.n):
        sums = d[tile_number * op.registers("d") :][: op.registers("d")]
        b = [f"{read}({tile}, {tile_number}, {k})" for k in range(op.registers("b"))]
        parts.append(f"{{ {_handed(op, sums, words, b, [f'{options[0]} ? emu_word({x}) : 0u' for x in sums])} }}")
    return " ".join(parts)


def _words(registers: Sequence[str]) -> list[str]:
    return [f"emu_word({x})" for x in registers]


def _rows_of(descriptor: str, op: Mma, turned: bool) -> list[str]:
    """The words of this lane of a tile of 16 rows for each warp: of 8 of the rows and 16 bytes of terms each."""
    eights = [(f"emu_warp_of_group() * 2 + {k % 2}", k // 2) for k in range(op.registers("a"))]
    return [f"{_READ[turned]}({descriptor}, {rows}, {terms})" for rows, terms in eights]


def _handed(op: Mma, d: tuple[str, ...], *words_of: Sequence[str]) -> str:
    """What a lane hands over, registers of A, B and C as texts of words, and what it gets."""
    fragments = ", ".join(_fragment(f) for f in (op.a, op.b, op.d))
    elements = ", ".join([_element(op.held(x)) for x in "abd"])
    table = f"{{{op.m}, {op.n}, {op.k}, {elements}, {fragments}}}"
    words = ", ".join("{" + ", ".join(part) + "}" for part in words_of)
    return f"static const EmuMma emu_op = {table}; EmuMmaLane emu_lane = {{&emu_op, {words}}}; " + _together("MMA", d)


def _rows(form: MatrixLoad, given: str) -> str:
    """What a lane hands over of rows in shared memory, or to be put there."""
    table = f"{{{form.count}, {_fragment(form.fragment(2))}}}"
    return f"static const EmuLoad emu_form = {table}; EmuLoadLane emu_lane = {{&emu_form, {given}}}; "


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
