"""A parser of inline PTX in CUDA source: statements, their instructions and operands.

    asm volatile("cvt.rna.tf32.f32 %0, %1;" : "=r"(x) : "f"(y));

is the statement with the instruction `cvt.rna.tf32.f32`, whose operands are the C++ texts `x` and `y`.  Operands in
braces or brackets are `Vector` and `Address`; words that are no `%number` stay as they are.  Read: one or several
instructions without labels, predicates or registers of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_TOKEN = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|\basm\b(?:\s+volatile\b)?\s*\(|[()]", re.DOTALL)
_STRING = re.compile(r'"((?:\\.|[^"\\])*)"')
_ESCAPES = {"\\n": " ", "\\t": " ", '\\"': '"', "\\\\": "\\"}


@dataclass(frozen=True)
class Vector:
    """`{...}`: registers."""

    items: tuple[str, ...]


@dataclass(frozen=True)
class Address:
    """`[...]`: a place in memory, as a C++ text."""

    text: str


Operand = str | Vector | Address


@dataclass(frozen=True)
class Instruction:
    """`name` with its modifiers, as `mma.sync.aligned...`."""

    name: str
    operands: tuple[Operand, ...]


@dataclass(frozen=True)
class Assembly:
    """An asm statement: the characters `start` to `end` of the source, without the semicolon."""

    start: int
    end: int
    instructions: tuple[Instruction, ...]


def assemblies(source: str) -> Iterator[Assembly]:
    """The asm statements of a source, in order; those in comments and strings are none."""
    start, depth = -1, 0
    for token in _TOKEN.finditer(source):
        text = token[0]
        if text.startswith("asm") and start < 0:
            start, inside, depth = token.start(), token.end(), 1
        elif text in "()" and start >= 0:
            depth += 1 if text == "(" else -1
            if depth == 0:
                yield Assembly(start, token.end(), _instructions(source[inside : token.start()]))
                start = -1


def _instructions(text: str) -> tuple[Instruction, ...]:
    parts = [*_split(text, ":"), "", "", ""]
    template = re.sub(r"\\.", lambda m: _ESCAPES.get(m[0], m[0]), "".join(_STRING.findall(parts[0])))
    values = [_value(x) for part in parts[1:3] for x in _split(part, ",") if x.strip()]
    return tuple([_instruction(x.strip(), values) for x in template.split(";") if x.strip()])


def _value(operand: str) -> str:
    """The C++ text of `"constraint"(text)`."""
    return operand[operand.index("(") : operand.rindex(")") + 1]


def _instruction(text: str, values: list[str]) -> Instruction:
    name, _, rest = text.partition(" ")
    return Instruction(name, tuple([_operand(x.strip(), values) for x in _split(rest, ",") if x.strip()]))


def _operand(text: str, values: list[str]) -> Operand:
    if text.startswith("{"):
        return Vector(tuple([_filled(x.strip(), values) for x in text.strip("{}").split(",")]))
    return Address(_filled(text.strip("[]"), values)) if text.startswith("[") else _filled(text, values)


def _filled(text: str, values: list[str]) -> str:
    return re.sub(r"%(\d+)", lambda m: values[int(m[1])], text)


def _split(text: str, mark: str) -> list[str]:
    """The pieces between marks that stand in no bracket and no string."""
    pieces, depth, start = [], 0, 0
    for m in re.finditer(r'"(?:\\.|[^"\\])*"|[()\[\]{}:,]', text):
        if m[0] in "([{":
            depth += 1
        elif m[0] in ")]}":
            depth -= 1
        elif m[0] == mark and depth == 0:
            pieces.append(text[start : m.start()])
            start = m.end()
    return [*pieces, text[start:]]
