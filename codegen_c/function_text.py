"""The text of one C function while it is written: names, expressions, registers, and the lines so far.

Both `statements.py` and `registers.py`, which prints runs of register arithmetic, write here.  The functions of float32
are those of `functions.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from te_lite.expr.expr import Binary, BufferLoad, Call, Expr, Var
from te_lite.loops.c_text import POSTFIX, CText
from te_lite.loops.names import Names
from te_lite.loops.stmt import Buffer, For, Store

from .functions import definitions, function_name, is_ours
from .indices import Indices
from .vector_text import Prelude, VectorText


@dataclass
class ScalarText(CText):
    """Prints expressions of one function; `helpers` collects the text of the functions that are called."""

    def function(self, e: Call, args: Sequence[str]) -> tuple[str, int]:
        """The text of a call; see `CText`."""
        if not is_ours(e):
            return super().function(e, args)
        name = function_name(e)
        self.helpers.update(definitions(name))
        return f"{name}_f32({', '.join(args if name == 'pow' else args[:1])})", POSTFIX


@dataclass
class FunctionText:
    """`lines` is the text so far; `slots` are the registers of the buffers that live in some, by element,
    `lanes` how many elements each holds.
    """

    indices: Indices
    text: ScalarText = field(init=False)
    names: Names = field(default_factory=Names)
    prelude: Prelude = field(default_factory=Prelude)
    lines: list[str] = field(default_factory=list)
    depth: int = 1
    slots: dict[object, dict[int, str]] = field(default_factory=dict)
    lanes: dict[object, dict[int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.text = ScalarText(self.var, self.load, self.indices.nonnegative, self.indices.widths)

    def line(self, text: str) -> None:
        self.lines.append("  " * self.depth + text)

    @contextmanager
    def braces(self, head: str = "") -> Iterator[None]:
        """What is written meanwhile stands in braces behind `head`."""
        self.line(f"{head}{{")
        self.depth += 1
        yield
        self.depth -= 1
        self.line("}")

    def var(self, v: Var) -> str:
        return self.names.of(v, v.name)

    def buffer(self, b: Buffer) -> str:
        """The name of an array."""
        return self.names.of(b, b.name)

    def load(self, e: BufferLoad) -> str:
        return self.place(e.buffer, e.index)

    def place(self, buffer: Buffer, index: Expr) -> str:
        """One element of `buffer`, as something that can be read and assigned."""
        slots = self.slots.get(buffer)
        if slots is not None:
            return self.register(buffer, slots, self.indices.linear(index).const)
        return f"{self.buffer(buffer)}[{self.text.expr(index)}]"

    def register(self, buffer: Buffer, slots: dict[int, str], element: int) -> str:
        """One element of a buffer that lives in registers; it may be a lane of a vector."""
        start = max(k for k in slots if k <= element)
        return slots[start] if self.lanes[buffer][start] == 1 else f"{slots[start]}[{element - start}]"

    def vector(self, loop: For) -> VectorText:
        """What prints expressions over the lanes of a vector loop."""
        return VectorText(self.text, self.prelude, loop.var, loop.extent, self.indices, self.slots)

    def assign(self, target: str, s: Store) -> None:
        operator, value = assignment(s)
        self.line(f"{target} {operator} {self.text.expr(value)};")


def assignment(s: Store) -> tuple[str, Expr]:
    """How a value is stored, "=", and which one; or what an accumulation adds, "+="."""
    match s.value:
        case Binary(op="+", a=BufferLoad(buffer=buffer, index=index), b=b) if buffer is s.buffer and index == s.index:
            return ("=", s.value) if buffer.dtype == "bool" else ("+=", b)
    return "=", s.value
