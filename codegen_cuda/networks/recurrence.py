"""A recurrence as one kernel: weights stay in registers from its first step to its last.

The rows are shared out among clusters of blocks, which need nothing of each other; the columns of a cluster among its
blocks.  `LANES` threads share the sums of a column, so that each holds a part of the weights of all its gates.  What a
step multiplies lies in the shared memory of every block, twice: what a block computes it sends to all blocks, whose
barriers count bytes, and each goes on when it has all of the next step.  By then all blocks have read the step before,
whose place is free: what they sent they had computed from it.  Blocks of a cluster run together by the hardware's
promise (sm_90), so no kernel beside this one can keep them from meeting.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from ansor.core.device.network_plan import KernelCode
from ansor.core.values.recurrence import Recurrence, Sliced, Written
from te_lite.expr.element import Buffer
from te_lite.expr.expr import BufferLoad, Expr, Var
from te_lite.expr.interval import Interval
from te_lite.expr.simplify import Simplifier
from te_lite.expr.visit import transform, walk
from te_lite.loops.width import Widths

from ..overlap.dependent_launch import may_wait, waiting
from ..overlap.prefetch import HELPER
from ..text.text import CudaText
from .cluster_text import CLUSTER_HELPERS

LANES, VECTOR = 8, 4
WARP = 32
MOST_BLOCKS, LEAST_COLUMNS = 8, 16
"""Blocks of a cluster, as many as every device may have, and columns of a block where there are several."""
REGISTERS, OTHER_REGISTERS, MOST_REGISTERS, MOST_THREADS = 65536, 60, 255, 1024
"""Those of a block, those of a thread beside its weights and sums, and its most."""
MOST_CLUSTERS, MOST_ROWS = 8, 8
"""Clusters of a kernel, so that two kernels fit a device, and rows of a cluster."""


@dataclass(frozen=True)
class Shares:
    """What falls to whom: `blocks` of a cluster, `columns` of a block, `rows` of each of `clusters`.

    Threads take `chunks` vectors of every sum.
    """

    blocks: int
    columns: int
    rows: int
    clusters: int
    chunks: int

    @property
    def threads(self) -> int:
        return self.columns * LANES

    @property
    def stride(self) -> int:
        """Elements from row to row of what is multiplied."""
        return self.chunks * LANES * VECTOR


def shares_of(recurrence: Recurrence, architecture: str) -> Shares | None:
    """How a recurrence is shared out, None for one that is too wide, or has too many rows."""
    width, batch, gates = recurrence.width, recurrence.batch, len(recurrence.gates)
    most = MOST_BLOCKS if may_wait(architecture) else 1
    rows = 1 << (-(-batch // MOST_CLUSTERS) - 1).bit_length()
    chunks = -(-width // (LANES * VECTOR))
    wide = [n for n in (8, 4, 2) if n <= most and width >= max(n * LEAST_COLUMNS, (n - 1) * _columns(width, n) + 1)]
    blocks = wide[0] if wide else 1
    shares = Shares(blocks, _columns(width, blocks), rows, -(-batch // rows), chunks)
    registers = gates * (chunks * VECTOR + rows) + OTHER_REGISTERS
    fits = registers <= MOST_REGISTERS and shares.threads <= MOST_THREADS and shares.threads * registers <= REGISTERS
    return shares if fits and rows <= MOST_ROWS else None


def _columns(width: int, blocks: int) -> int:
    """The columns of a block, which are whole warps."""
    return -(-width // (blocks * (WARP // LANES))) * (WARP // LANES)


def recurrence_code(recurrence: Recurrence, architecture: str) -> KernelCode | None:
    """The kernel of a recurrence, None where it is too large for one."""
    shares = shares_of(recurrence, architecture)
    if shares is None:
        return None
    kernel, waits = _Kernel(recurrence, shares), may_wait(architecture)
    name, lines = f"{recurrence.name}_kernel0", list(kernel.lines())
    results = {w.argument for w in recurrence.written}
    pointers = [b.name for b in recurrence.arguments]
    params = [f"{'' if k in results else 'const '}float *__restrict__ {name}" for k, name in enumerate(pointers)]
    cluster = f"__cluster_dims__({shares.blocks}, 1, 1) " if shares.blocks > 1 else ""
    head = f'extern "C" __global__ void {cluster}__launch_bounds__({shares.threads}, 1) '
    plain = "\n".join([f"{head}{name}({', '.join(params)}) {{", *lines, "}"])
    text = waiting(head, name, params, pointers, lines) if waits else plain
    helpers = [
        *([CLUSTER_HELPERS] if shares.blocks > 1 else []),
        *([HELPER] if waits else []),
        *kernel.text.helpers.values(),
    ]
    launch = {
        "name": name, "grid": [shares.clusters * shares.blocks, 1, 1], "block": [shares.threads, 1, 1],
        "arguments": list(range(len(pointers))), "dynamic_bytes": 0,
    }  # fmt: skip
    facts = {"arguments": len(pointers), "scratch_bytes": [], "kernels": [launch], "ahead": waits}
    return KernelCode(recurrence.name, "\n\n".join([*helpers, text]) + "\n", (), facts)


@dataclass
class _Kernel:
    """Prints the body of the kernel.

    `held` are names of what was read, by array and index: of arguments that stay, and of the slices of a step.
    """

    of: Recurrence
    shares: Shares
    held: dict[tuple[Buffer, str], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        r = self.of
        ranges: dict[Var, Interval] = {r.row: (0, r.batch - 1), r.column: (0, r.width - 1)}
        self.known = Simplifier({r.row: (0, r.batch - 1), r.column: (0, r.width - 1)})
        self.text = CudaText(lambda v: v.name, self.load, self.nonnegative, Widths(ranges))

    def nonnegative(self, e: Expr) -> bool:
        low = self.known.bounds(e)[0]
        return low is not None and low >= 0

    def load(self, e: BufferLoad) -> str:
        if e.buffer.storage == "local":
            return e.buffer.name
        index = self.text.expr(e.index)
        return self.held.get((e.buffer, index), f"{e.buffer.name}[{index}]")

    @cached_property
    def slices(self) -> dict[Buffer, Sliced]:
        return {self.of.arguments[s.argument]: s for s in self.of.sliced}

    def lines(self) -> Iterator[str]:
        """The statements of a thread."""
        together = self.shares.blocks > 1
        yield from self.places()
        yield from self.weights()
        yield from self.beginning()
        yield "  meet();" if together else "  __syncthreads();"
        works = f"unit / {WARP // LANES} * {WARP // LANES} < {self.of.width}"  # warps that send nothing need not wait
        yield f"  for (int step = 0; step < {self.of.steps}{f' && {works}' if together else ''}; ++step) {{"
        yield from self.step()
        yield "  }"
        yield from self.writes([w for w in self.of.written if w.size is None], "  ")
        if together:
            yield "  meet();"

    def places(self) -> Iterator[str]:
        """Where a thread is."""
        r, s = self.of, self.shares
        yield f"  __shared__ __align__(16) float operand[{2 * s.rows * s.stride}];"
        if s.blocks > 1:
            yield "  __shared__ unsigned long long ready[2];"
        yield f"  const int lane = threadIdx.x % {LANES}, part = lane % {LANES // s.rows};"
        yield f"  const int first = (int)blockIdx.x / {s.blocks} * {s.rows}, own_row = lane / {LANES // s.rows};"
        yield f"  const int unit = (int)blockIdx.x % {s.blocks} * {s.columns} + (int)threadIdx.x / {LANES};"
        yield f"  const int row = min(first + own_row, {r.batch - 1}), column = min(unit, {r.width - 1});"
        yield f"  const bool is_there = unit < {r.width};"
        yield f"  const bool writes = is_there && part == 0 && first + own_row < {r.batch};"

    def weights(self) -> Iterator[str]:
        """The weights that the thread keeps: of `chunks` vectors of its lane, all gates."""
        r, s = self.of, self.shares
        count, name = len(r.gates) * s.chunks * VECTOR, r.arguments[r.weight].name
        outputs = len(r.gates) * r.width
        place = f"out * {r.width} + in" if r.by_output else f"in * {outputs} + out"
        yield f"  float weight[{count}];"
        yield "  #pragma unroll"
        step = VECTOR if r.by_output and r.width % VECTOR == 0 else 1
        yield f"  for (int k = 0; k < {count}; k += {step}) {{"
        yield f"    const int in = {VECTOR} * (lane + {LANES} * (k / {VECTOR} % {s.chunks})) + k % {VECTOR};"
        yield f"    const int out = k / {VECTOR * s.chunks} * {r.width} + column;"
        if step == 1:
            yield f"    weight[k] = in < {r.width} ? {name}[{place}] : 0.0f;"
        else:
            yield "    float4 four = make_float4(0.0f, 0.0f, 0.0f, 0.0f);"
            yield f"    if (in < {r.width}) four = *reinterpret_cast<const float4 *>({name} + {place});"
            yield from [f"    weight[k + {n}] = four.{x};" for n, x in enumerate("xyzw")]
        yield "  }"

    def beginning(self) -> Iterator[str]:
        """What is known before the first step."""
        r, s = self.of, self.shares
        starts = {h.value: h.start for h in r.held}
        start = transform(r.operand, lambda e: starts.get(e.buffer) if isinstance(e, BufferLoad) else None)
        yield f"  for (int k = threadIdx.x; k < {2 * s.rows * s.stride}; k += {s.threads}) {{"
        yield f"    const int column = k % {s.stride}, row = min(first + k / {s.stride}, {r.batch - 1});"
        yield f"    operand[k] = k < {s.rows * s.stride} && column < {r.width} ? {self.text.expr(start)} : 0.0f;"
        yield "  }"
        for h in r.held:
            yield f"  float {h.value.name} = {self.text.expr(h.start)};"
        for e in self.reads():
            buffer, index = e.buffer, self.text.expr(e.index)
            stays, name = buffer not in self.slices, f"read{len(self.held)}"
            at = index if stays else self.sliced(self.slices[buffer], "0", index)
            yield f"  {'const ' if stays else ''}float {name} = {buffer.name}[{at}];"
            self.held[buffer, index] = name
        if s.blocks > 1:
            yield "  if (threadIdx.x == 0) {"
            yield from [f"    begin(ready + {k}); expect(ready + {k}, {self.sent});" for k in (0, 1)]
            yield "  }"

    @property
    def sent(self) -> int:
        """The bytes that a block gets in a step."""
        return self.shares.rows * self.of.width * 4

    def reads(self) -> Iterator[BufferLoad]:
        """What steps read of arguments, each once."""
        seen = set[tuple[Buffer, str]]()
        for root in [*[h.after for h in self.of.held], *[w.value for w in self.of.written]]:
            for e in walk(root):
                if isinstance(e, BufferLoad) and e.buffer.storage != "local":
                    key = e.buffer, self.text.expr(e.index)
                    if key not in seen:
                        seen.add(key)
                        yield e

    def sliced(self, one: Sliced, step: str, index: str) -> str:
        """The index in an argument of that in the slice that a step takes."""
        number = self.number(step)
        taken = number if (one.every, one.count) == (1, self.of.steps) else f"{number} / {one.every} % {one.count}"
        return f"(long long)({taken}) * {one.size} + {index}"

    def number(self, step: str) -> str:
        """The number of the slice that a step gives."""
        return f"({self.of.steps - 1} - {step})" if self.of.backwards else step

    def step(self) -> Iterator[str]:
        """One step: slices of the next one are read meanwhile."""
        r, s = self.of, self.shares
        moving = [(b, index, name) for (b, index), name in self.held.items() if b in self.slices]
        yield f"    const int later = min(step + 1, {r.steps - 1});"
        for b, index, name in moving:
            yield f"    const float later_{name} = {b.name}[{self.sliced(self.slices[b], 'later', index)}];"
        if s.blocks > 1:
            yield "    if (step > 0) {"
            yield "      receive(ready + step % 2, (step - 1) / 2 % 2);"
            yield f"      if (threadIdx.x == 0) expect(ready + step % 2, {self.sent});"
            yield "    }"
        yield from self.sums()
        for h in r.held:
            yield f"    const float new_{h.value.name} = {self.text.expr(h.after)};"
        after = {id(h.after): f"new_{h.value.name}" for h in r.held}
        yield from self.hands_over()
        yield from self.writes([w for w in r.written if w.size is not None], "    ", after)
        for name in [h.value.name for h in r.held]:
            yield f"    {name} = new_{name};"
        for _, _, name in moving:
            yield f"    {name} = later_{name};"
        if s.blocks == 1:
            yield "    __syncthreads();"

    def hands_over(self) -> Iterator[str]:
        """What the next step multiplies, to all blocks; the lanes of a point take some of these each."""
        r, s = self.of, self.shares
        news = {h.value: BufferLoad(replace(h.value, name=f"new_{h.value.name}"), h.start) for h in r.held}
        value = transform(r.operand, lambda e: news.get(e.buffer) if isinstance(e, BufferLoad) else None)
        yield f"    if (is_there && step + 1 < {r.steps}) {{"
        yield f"      float *next = operand + (step + 1) % 2 * {s.rows * s.stride} + own_row * {s.stride} + unit;"
        yield f"      const float value = {self.text.expr(value)};"
        for k in range(0, s.blocks, LANES // s.rows) if s.blocks > 1 else ():
            guard = f"if (part + {k} < {s.blocks}) " if k + LANES // s.rows > s.blocks else ""
            yield f"      {guard}send(next, ready + (step + 1) % 2, part + {k}, value);"
        if s.blocks == 1:
            yield "      if (part == 0) *next = value;"
        yield "    }"

    def sums(self) -> Iterator[str]:
        """The gates of the thread's point: sums of each lane, then those of a row on the lanes of that row."""
        gates, s = self.of.gates, self.shares
        yield f"    const float *now = operand + step % 2 * {s.rows * s.stride};"
        yield f"    float sum[{len(gates) * s.rows}] = {{}};"
        yield "    #pragma unroll"
        yield f"    for (int k = 0; k < {s.chunks}; ++k) {{"
        yield "      #pragma unroll"
        yield f"      for (int r = 0; r < {s.rows}; ++r) {{"
        place = f"now + r * {s.stride} + {VECTOR} * (lane + {LANES} * k)"
        yield f"        const float4 x = *reinterpret_cast<const float4 *>({place});"
        for g in range(len(gates)):
            for n, lane in enumerate("xyzw"):
                weight = f"weight[{g * s.chunks * VECTOR + n} + {VECTOR} * k]"
                yield f"        sum[{g * s.rows} + r] += {weight} * x.{lane};"
        yield from ["      }", "    }"]
        bit, rows = LANES // 2, s.rows
        while rows > 1:
            rows //= 2
            yield from self.halved(bit, rows)
            bit //= 2
        for g, gate in enumerate(gates):
            yield f"    float {gate.name} = sum[{g * s.rows}];"
        while bit:
            for gate in gates:
                yield f"    {gate.name} += __shfl_xor_sync(0xffffffffu, {gate.name}, {bit});"
            bit //= 2

    def halved(self, bit: int, rows: int) -> Iterator[str]:
        """Lanes give away one half of their rows and add to the other what those that differ in `bit` give."""
        every = [g * self.shares.rows + r for g in range(len(self.of.gates)) for r in range(rows)]
        yield f"    const bool upper{bit} = lane & {bit};"
        for k in every:
            a, b = f"sum[{k}]", f"sum[{k + rows}]"
            given = f"__shfl_xor_sync(0xffffffffu, upper{bit} ? {a} : {b}, {bit})"
            yield f"    {a} = (upper{bit} ? {b} : {a}) + {given};"

    def writes(self, results: Sequence[Written], indent: str, names: dict[int, str] | None = None) -> Iterator[str]:
        """Results at the thread's point; `names` has those that are known, by the id of their expression."""
        r = self.of
        yield f"{indent}if (writes) {{"
        for w in results:
            index, found = self.text.expr(w.index), (names or {}).get(id(w.value))
            at = index if w.size is None else f"(long long){self.number('step')} * {w.size} + {index}"
            yield f"{indent}  {r.arguments[w.argument].name}[{at}] = {found or self.text.expr(w.value)};"
        yield f"{indent}}}"
