"""Products and element-wise operations as micro-op kernels.

The loops around one operation are affine in its indices.  Those of a single iteration vanish; the two outermost that
are left become loops of the instruction, the others are written out as micro-ops.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from te_lite.errors import require
from te_lite.expr.expr import Binary, BufferLoad, Cast, Const, Expr, Var, same
from te_lite.loops.stmt import Buffer, For
from te_lite.loops.stmt_text import head_text

from ..core.config import LOOP_BITS, Config
from ..core.errors import CompileError
from ..core.kinds import AluOp, Memory
from ..isa.fields import Ints
from ..runtime.uop_kernel import HAZARD, MAX_LOOPS, AluMode, GemmMode, KernelRecorder, Mode, Record
from .affine import Form, affine
from .elementwise import IMM_RANGE, Chain
from .host_nest import Part
from .places import Places
from .scopes import ACC, INP, WGT, lanes

Index = tuple[int, int, int]
WHOLE = "the loops must advance by whole elements"


@dataclass(frozen=True)
class Count:
    """A loop: its extent, and what each iteration adds to the indices (accumulator, source, weight)."""

    extent: int
    steps: Index


@dataclass(frozen=True, eq=False, repr=False)
class KernelCall:
    """A kernel of `mode`.  `base` are the indices of thread 0 at the first iteration, `copies` what lies between the
    tiles of two threads."""

    name: str
    mode: Mode
    counts: tuple[Count, ...]
    base: tuple[Form, Form, Form]
    copies: Index

    def __repr__(self) -> str:
        return self.name

    @cached_property
    def uops(self) -> list[Index]:
        """The micro-ops, counted from the base."""
        return uops_of(self.counts)

    def at(self, thread: int, env: Mapping[Var, int]) -> Index:
        """The indices of a thread at the first iteration."""
        dst, src, wgt = (form.at(env) + thread * copy for form, copy in zip(self.base, self.copies, strict=True))
        return dst, src, wgt

    def record(self, base: Index) -> Record:
        """What makes the kernel at some place."""

        def recorded(r: KernelRecorder) -> None:
            for count in self.counts[:MAX_LOOPS]:
                r.loop(count.extent, *count.steps)
            for uop in self.uops:
                self._uop(r, base, uop)

        return recorded

    def _uop(self, r: KernelRecorder, base: Index, uop: Index) -> None:
        dst, src, wgt = (b + u for b, u in zip(base, uop, strict=True))
        match self.mode:
            case GemmMode(reset):
                r.gemm(dst, src, wgt, reset)
            case AluMode(op, use_imm, imm):
                r.alu(op, dst, src, imm if use_imm else None)


def product_call(part: Part, places: Places, config: Config) -> KernelCall:
    """The GEMM kernel of a tensorized part: products that are summed up, or accumulators that are cleared.

    Raises CompileError unless the tensorized loops are one product of the machine.
    """
    store, n = part.store, config.batch
    cleared = isinstance(store.value, Const) and store.value.value == 0
    reads = [] if cleared else _factors(part)
    forms = [affine(store.index), *(affine(r.index) for r in reads)]
    buffers = [store.buffer, *(r.buffer for r in reads)]
    block = config.block_out
    steps = [(block, 1, 0), (block, 0, 1), (0, block, 1)]
    extents = (n, block, config.block_in) if reads else (n, block)
    _check_block(part, forms, steps, extents)
    sizes = [lanes(config, m) for m in (Memory.ACC, Memory.INP, Memory.WGT)][: len(forms)]
    call = _call(part, part.loops, GemmMode(reset=not reads), forms, buffers, sizes, places)
    _check_fields(call, config)
    return call


def fill_calls(part: Part, places: Places, config: Config) -> list[KernelCall]:
    """The kernels that set accumulators to a number: they are cleared, and the number is added.

    Raises CompileError for one that an instruction has no room for.
    """
    n, own = lanes(config, Memory.ACC), affine(part.store.index)
    loops, number = _outside_lanes(part, [own], n), _constant(part)
    low, high = IMM_RANGE
    require(low <= number <= high, CompileError, part.name, "the constant must fit 16 bits", constant=number)
    modes: list[Mode] = [GemmMode(reset=True), *([AluMode(AluOp.ADD, True, number)] if number else [])]
    calls = [_call(part, loops, mode, [own], [part.store.buffer], [n], places) for mode in modes]
    for call in calls:
        _check_fields(call, config)
    return calls


def fills(part: Part) -> bool:
    """Whether a part sets accumulators to a number, and is no part of a product."""
    return part.store.buffer.scope == ACC and not part.inner and isinstance(part.store.value, Const)


def _constant(part: Part) -> int:
    assert isinstance(part.store.value, Const)
    return int(part.store.value.value)


def _factors(part: Part) -> list[BufferLoad]:
    """The inputs and the weights of `acc = acc + int32(inputs) * int32(weights)`."""
    store, value = part.store, part.store.value
    law = "what is tensorized must be acc = acc + int32(inputs) * int32(weights), or acc = 0"
    own = BufferLoad(store.buffer, store.index)
    ok = store.buffer.scope == ACC and isinstance(value, Binary) and value.op == "+" and same(value.a, own)
    require(ok, CompileError, head_text(store), law)
    assert isinstance(value, Binary)
    times = value.b
    reads = [_widened(e) for e in (times.a, times.b)] if isinstance(times, Binary) and times.op == "*" else []
    found = sorted((r for r in reads if r is not None), key=lambda r: r.buffer.scope)
    require([r.buffer.scope for r in found] == [INP, WGT], CompileError, head_text(store), law)
    return found


def _widened(e: Expr) -> BufferLoad | None:
    inner = e.a if isinstance(e, Cast) and e.dtype == "int32" else e
    return inner if isinstance(inner, BufferLoad) and inner.dtype == "int8" else None


def _check_block(part: Part, forms: Sequence[Form], steps: Sequence[Sequence[int]], extents: Sequence[int]) -> None:
    """The tensorized loops must run through the rows, output and input channels of one element, in any order."""
    expected = {k: tuple([step[k] for step in steps[: len(forms)]]) for k, n in enumerate(extents) if n > 1}
    found = [f for f in part.inner if f.extent > 1]
    names = {k: extents[k] for k in expected}
    law = f"the tensorized loops must be one product of the machine, of extents {list(names.values())}"
    got = [(f.extent, tuple([form.of(f.var) for form in forms])) for f in found]
    ok = sorted(got) == sorted((extents[k], step) for k, step in expected.items())
    require(ok, CompileError, part.name, law, extents=[f.extent for f in part.inner], steps=[s for _, s in got])


def element_calls(part: Part, chain: Chain, places: Places, config: Config) -> list[KernelCall]:
    """The ALU kernels of an element-wise part, one an operation.  Raises CompileError for what no kernel does."""
    n = lanes(config, Memory.ACC)
    own = affine(part.store.index)
    calls = []
    for step in chain.steps:
        mode = AluMode(step.op, step.imm is not None, step.imm or 0)
        other = step.other
        forms = [own, own if other is None else affine(other.index)]
        buffers = [part.store.buffer, part.store.buffer if other is None else other.buffer]
        call = _call(part, _outside_lanes(part, forms, n), mode, forms, buffers, [n, n], places)
        merged = KernelCall(call.name, call.mode, _merged(call.counts), call.base, call.copies)
        _check_fields(merged, config)
        calls.append(merged)
    return calls


def _outside_lanes(part: Part, forms: Sequence[Form], n: int) -> list[For]:
    """The loops without the innermost ones, which must run through an element on all sides."""
    loops, covered = list(part.loops), 1
    while covered < n:
        law = f"the innermost loops must run through elements of {n} numbers, on both sides alike"
        require(bool(loops), CompileError, part.name, law)
        f = loops.pop()
        ok = f.extent == 1 or all(form.of(f.var) == covered for form in forms)
        require(ok and n % (covered * f.extent) == 0, CompileError, part.name, law, loop=f.var.name, extent=f.extent)
        covered *= f.extent
    return loops


def _call(
    part: Part,
    loops: Sequence[For],
    mode: Mode,
    forms: Sequence[Form],
    buffers: Sequence[Buffer],
    sizes: Sequence[int],
    places: Places,
) -> KernelCall:
    """The kernel over `loops`, those of a part around one operation; missing indices are 0 throughout."""
    variables = [f.var for f in (*part.loops, *part.inner)]
    counts = _counts(part.name, loops, forms, sizes)
    base = [
        Form(places.base[b]).plus(form.without(variables).divided(n, part.name, WHOLE))
        for form, b, n in zip(forms, buffers, sizes, strict=True)
    ]
    copies = _three([places.size[b] for b in buffers])
    dst, src, wgt = (*base, Form(0), Form(0))[:3]
    return KernelCall(part.name, mode, tuple(counts), (dst, src, wgt), copies)


def _counts(name: str, loops: Sequence[For], forms: Sequence[Form], sizes: Sequence[int]) -> list[Count]:
    """The loops of more than one iteration, with what they add to the indices."""
    counts = []
    for f in loops:
        steps = [form.of(f.var) for form in forms]
        require(all(s % n == 0 for s, n in zip(steps, sizes, strict=True)), CompileError, name, WHOLE, steps=steps)
        if f.extent > 1:
            counts.append(Count(f.extent, _three([s // n for s, n in zip(steps, sizes, strict=True)])))
    return counts


def _three(values: Sequence[int]) -> Index:
    dst, src, wgt = (*values, 0, 0)[:3]
    return dst, src, wgt


def _merged(counts: tuple[Count, ...]) -> tuple[Count, ...]:
    """Neighbouring loops that move on alike as one."""
    out: list[Count] = []
    for count in counts:
        if out and out[-1].steps == tuple(count.extent * s for s in count.steps):
            count = Count(out.pop().extent * count.extent, count.steps)
        out.append(count)
    return tuple(out)


def _check_fields(call: KernelCall, config: Config) -> None:
    """What the runtime and the instruction would refuse."""
    most = (1 << LOOP_BITS) - 1
    extents = [count.extent for count in call.counts[:MAX_LOOPS]]
    law = f"the two outermost loops must be at most {most} long"
    require(max(extents, default=0) <= most, CompileError, call.name, law, extents=extents)
    limit = config.depth(Memory.UOP)
    length = 1
    for count in call.counts[MAX_LOOPS:]:
        length *= count.extent
    law = f"the loops inside the two outermost must be at most {limit} micro-ops"
    require(length <= limit, CompileError, call.name, law, micro_ops=length)
    extents = [count.extent for count in call.counts]
    law = f"a micro-op may not write an accumulator that one of the {HAZARD} before it wrote"
    require(not writes_again(call.uops), CompileError, call.name, law, loops=extents)


def uops_of(counts: Sequence[Count]) -> list[Index]:
    """The micro-ops of a kernel with these loops, counted from its base."""
    table = np.zeros((1, 3), np.int64)
    for count in counts[MAX_LOOPS:]:
        steps = np.arange(count.extent)[:, None] * np.array(count.steps)
        table = (table[:, None] + steps[None]).reshape(-1, 3)
    return [(d, s, w) for d, s, w in table.tolist()]


def writes_again(uops: Sequence[Index]) -> bool:
    """Whether a micro-op writes what one shortly before it wrote."""
    dst: Ints = np.array([uop[0] for uop in uops], np.int64)
    return any(bool((dst[k:] == dst[:-k]).any()) for k in range(1, HAZARD + 1) if len(dst) > k)
