"""A lowered program as C source.

The program is prepared by five passes (vectorize, promote, registers, transpose, and the refusal of what C has no words
for) and then printed statement by statement (`statements.py`); `emit` puts the file together.
"""

from __future__ import annotations

from collections.abc import Iterator

from te_lite.errors import require
from te_lite.loops.c_text import TYPES
from te_lite.loops.names import Names, identifier
from te_lite.loops.stmt import (
    Alloc,
    Barrier,
    Buffer,
    For,
    ForKind,
    Instruction,
    LoweredFunc,
    ThreadReduce,
    stmts_of,
    stored_in,
)
from te_lite.verify.verify import require_lowered, verify

from .errors import EmitError
from .horizontal_sums import lane_sums
from .indices import Indices
from .processor import Options, host_options
from .promote import promote
from .registers import scalarise
from .statements import Emitter, heap_allocs
from .transpose import turned
from .vectorize import legalise

_GPU_LOOPS = (ForKind.BLOCK, ForKind.THREAD, ForKind.VTHREAD)
_HEADERS = ("math.h", "stdbool.h", "stdint.h", "time.h")
_SCRATCH = """#include <stdio.h>
#include <stdlib.h>
static void *scratch(size_t bytes) {
  void *p = aligned_alloc(64, (bytes + 63) / 64 * 64);
  if (!p) { fprintf(stderr, "out of memory: %zu bytes of scratch space\\n", bytes); abort(); }
  return p;
}"""
_REGISTERS = (
    "#if defined(__aarch64__)",
    "#define REGISTER_BYTES 16",
    '#define IN_REGISTER "+w"',
    "#elif defined(__SSE2__)",
    "#define REGISTER_BYTES (__AVX512F__ ? 64 : __AVX__ ? 32 : 16)",
    '#define IN_REGISTER "+v"',
    "#else",
    "#define REGISTER_BYTES 0",
    "#endif",
)
_SHUFFLE = (
    "#if defined(__clang__) || __GNUC__ >= 12",
    "#define SHUFFLE(mask, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)",
    "#else",
    "#define SHUFFLE(mask, a, b, ...) __builtin_shuffle(a, b, (mask){__VA_ARGS__})",
    "#endif",
)


def refuse_threads(func: LoweredFunc) -> None:
    """Raise EmitError for a program that needs the threads of a GPU block."""
    for s in stmts_of(func.body):
        what = ""
        match s:
            case For(kind=kind, tag=tag) if kind in _GPU_LOOPS:
                what = f"a loop over {tag or kind.value}"
            case Alloc(buffer=buffer) if buffer.storage == "shared":
                what = f"the shared buffer {buffer.name}"
            case Barrier():
                what = "a barrier"
            case ThreadReduce():
                what = "a reduction across threads"
            case Instruction():
                what = "an instruction of tensor cores"
        require(not what, EmitError, func.name, "the C target has no thread blocks, schedule it for a CPU", found=what)


def _signature(func: LoweredFunc, emitter: Emitter, written: frozenset[Buffer]) -> str:
    kinds = [f"{'' if b in written else 'const '}{TYPES[b.dtype]}" for b in func.args]
    arrays = [f"{t} *restrict {emitter.out.buffer(b)}" for t, b in zip(kinds, func.args, strict=True)]
    return ", ".join([*arrays, *[f"int64_t {emitter.out.var(v)}" for v in func.sizes]])


def entry_name(func: LoweredFunc, name: str | None = None) -> str:
    """The C name of the function."""
    return Names().fresh(name or func.name)


def emit(func: LoweredFunc, name: str | None = None, options: Options | None = None) -> str:
    """The C source of `func`.

    It defines `void NAME(args)`, pointers to the first elements in the order of `func.args`, and
    `double NAME_seconds(int64_t number, args)`, the time in seconds of `number` calls.  Raises EmitError for
    programs with thread blocks, UnsafeError for one that the verifier refuses, LowerError for what is no program.
    """
    require_lowered(func)
    refuse_threads(func)
    verify(func)
    options = options or host_options()
    indices = Indices(func.body)
    body, lanes = legalise(lane_sums(func.body, options, indices), options, indices)
    body = scalarise(promote(body, options, lanes, indices), options, lanes, indices)
    body, squares = turned(body, options, lanes, indices)
    emitter = Emitter(options, lanes, indices, squares)
    entry = emitter.out.names.fresh(entry_name(func, name))
    timer = f"{entry}_seconds"
    signature = _signature(func, emitter, stored_in(body))
    heap = [b for b in dict.fromkeys(heap_allocs(body, into_parallel=False)) if emitter.in_heap(b)]
    emitter.with_heap(heap, lambda: emitter.stmt(body))
    return _file(func, emitter, entry, timer, signature)


def _file(func: LoweredFunc, emitter: Emitter, entry: str, timer: str, signature: str) -> str:
    shapes = ", ".join(f"{identifier(b.name)}[{', '.join(map(str, b.shape))}] {b.dtype}" for b in func.args)
    names = ", ".join([*map(emitter.out.buffer, func.args), *map(emitter.out.var, func.sizes)])
    parts = [f"/* {entry}: {shapes} */", *_needed(emitter)]
    parts += ["", f"__attribute__((noinline)) void {entry}({signature}) {{", *emitter.out.lines, "}", ""]
    parts.append(timer_text(timer, signature, f"{entry}({names})"))
    return "\n".join(parts) + "\n"


def timer_text(name: str, parameters: str, call: str) -> str:
    """The C function `name` of a number, and of `parameters`: the seconds that so many times `call` take."""
    return f"""double {name}(int64_t number, {parameters}) {{
  struct timespec start, stop;
  clock_gettime(CLOCK_MONOTONIC, &start);
  for (int64_t call = 0; call < number; ++call) {call};
  clock_gettime(CLOCK_MONOTONIC, &stop);
  return (double)(stop.tv_sec - start.tv_sec) + 1e-9 * (double)(stop.tv_nsec - start.tv_nsec);
}}"""


def _needed(emitter: Emitter) -> Iterator[str]:
    """The headers, types, macros and helper functions that the text of a function uses."""
    out = emitter.out
    yield from [f"#include <{h}>" for h in _HEADERS]
    yield from ["", *out.prelude.types.values()]
    texts = [*out.lines, *out.prelude.helpers.values()]
    if any(")abs(" in text for text in texts):
        yield "#include <stdlib.h>"
    if any("VEC(" in text for text in texts):
        yield "#define VEC(type, element) (*(type *)&(element))"
    if any("REGISTER_BYTES" in text for text in texts):
        yield from _REGISTERS
    if any("SHUFFLE(" in text for text in texts):
        yield from _SHUFFLE
    yield from [*out.text.helpers.values(), *out.prelude.helpers.values()]
    if emitter.needs_scratch:
        yield _SCRATCH
