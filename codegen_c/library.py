"""Networks as one shared library: kernels, the calls between them, and the threads that share each.

Kernels are compiled one by one (side by side, if the caller uses threads) and kept under a name made of their source;
the driver is a small source that calls them in order on pointers; `link` puts everything together.

    void network_run(int64_t first, int64_t last, unsigned char *arena, void *const *data);
    double network_seconds(int64_t number, int64_t first, int64_t last, unsigned char *arena, void *const *data);

run the steps `first .. last - 1`, once or `number` times with the seconds taken.

A network is a hundred parallel loops one after the other, and OpenMP's library ends none before each of its threads has
come to it.  With the threads of team.c, whoever is there does the work (docs/measuring.md).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ansor.core.device.network_plan import ExecutionPlan
from ansor.core.files.private_files import read_sealed, write_sealed
from te_lite.expr.dtype import BYTES
from te_lite.expr.expr import BufferLoad, Expr
from te_lite.expr.visit import transform
from te_lite.loops.stmt import Alloc, Buffer, LoweredFunc, Stmt, Store, allocated, bodies, map_exprs, with_bodies

from .compile import (
    OBJECT_FLAGS,
    build_folder,
    compiler_command,
    compiler_facts,
    object_code,
    run_compiler,
    stored_path,
)
from .emit import timer_text
from .processor import NATIVE, Options, host_options, macros_of

# -------------------------------------------------------------------------------------------------------------- threads


SOURCE = Path(__file__).parent / "team.c"
NAME = "threads.team"
"""No kernel has such a name."""
_OTHERS = {"__clang__", "__INTEL_COMPILER", "__NVCOMPILER", "__PGI"}
_FLAGS = (*[flag for flag in OBJECT_FLAGS if flag != "-fopenmp"], "-fvisibility=hidden")


def team_objects() -> Mapping[str, bytes]:
    """What is linked with the kernels of a network in place of OpenMP's library; nothing where that is needed.

    Raises CompileError.
    """
    return {NAME: object_code(SOURCE.read_text(), "team", _FLAGS)} if is_gcc(compiler_command()) else {}


def is_gcc(command: tuple[str, ...]) -> bool:
    """Whether the compiler is gcc for Linux, and none that only says so.  Raises CompileError."""
    macros = macros_of(command, NATIVE)
    return {"__GNUC__", "__linux__"} <= macros and not macros & _OTHERS


# ------------------------------------------------------------------------------------------------------------ libraries


RUN, SECONDS = "network_run", "network_seconds"
_STEPS = "int64_t first, int64_t last, unsigned char *arena, void *const *data"
_LINK_FLAGS = ("-shared", "-Wl,-Bsymbolic", "-Wl,-z,defs")


def hoist_scratch(func: LoweredFunc, options: Options | None = None) -> tuple[LoweredFunc, tuple[Buffer, ...]]:
    """Let the caller give the large arrays that a program needs while it runs.

    They become arguments after those of `func`, instead of being allocated at each call.  Arrays of at most
    `options.stack_bytes`, and those inside loops, stay.  Gives the program and the new arguments.
    """
    most = (options or host_options()).stack_bytes
    kept: list[Buffer] = []
    out: list[Buffer] = []
    body: Stmt = func.body
    while isinstance(body, Alloc):
        (out if body.buffer.size * BYTES[body.buffer.dtype] > most else kept).append(body.buffer)
        body = body.body
    body = allocated(kept, body)
    given = {b: b if b.scope == "global" else replace(b, scope="global") for b in out}
    return replace(func, args=(*func.args, *given.values()), body=_elsewhere(body, given)), tuple(given.values())


def _elsewhere(s: Stmt, place: Mapping[Buffer, Buffer]) -> Stmt:
    """`s` with other buffers in the place of some."""

    def load(e: Expr) -> Expr | None:
        if isinstance(e, BufferLoad) and e.buffer in place:
            return BufferLoad(place[e.buffer], transform(e.index, load))
        return None

    def stores(s: Stmt) -> Stmt:
        if isinstance(s, Store):
            return Store(place.get(s.buffer, s.buffer), s.index, s.value)
        return with_bodies(s, tuple(map(stores, bodies(s))))

    moved = any(old is not new for old, new in place.items())
    return stores(map_exprs(s, lambda e: transform(e, load))) if moved else s


def driver_source(plan: ExecutionPlan) -> str:
    """The C source that makes the calls of a plan, see the top of this file: a table of them, so that it stays small.

    Behind the arguments of a step stand its guards, bools that must be false (1) or true (2) for it to run.
    """
    kernels = {s.kernel: len(s.storages) for s in plan.steps if s.kernel}
    lines = ["#include <stdint.h>", "#include <time.h>", ""]
    lines += [f"void {name}({', '.join(['void *'] * count)});" for name, count in kernels.items()]
    for name, count in kernels.items():
        pointers = ", ".join([f"p[{k}]" for k in range(count)])
        lines.append(f"static void network_call_{name}(void **p) {{ {name}({pointers}); }}")
    places, steps, most = list[str](), list[str](), 1
    for s in plan.steps:
        call, first = f"network_call_{s.kernel}" if s.kernel else 0, len(places)
        for guard, storages in enumerate((s.storages, s.unless, s.where)):
            for whole, start in map(plan.place, storages):
                places.append(f"{{{-1 if whole is None else whole}, {start}, {guard}}}")
        steps.append(f"{{{call}, {first}, {len(places) - first}, {s.back}}}")
        most = max(most, len(places) - first)
    lines += [
        "",
        "typedef struct { int64_t number, start, guard; } place;",
        "typedef struct { void (*run)(void **); int64_t first, count, back; } step;",
        f"static const place places[] = {{{', '.join([*places, '{0, 0, 0}'])}}};",
        f"static const step steps[] = {{{', '.join([*steps, '{0, 0, 0, 0}'])}}};",
        "",
        f"void {RUN}({_STEPS}) {{",
        f"  void *p[{most}];  int64_t k;",
        "  for (int64_t n = first; n < last; ++n) {",
        "    const step *s = steps + n;",
        "    for (k = 0; k < s->count; ++k) {",
        "      const place at = places[s->first + k];",
        "      p[k] = (at.number < 0 ? arena : (unsigned char *)data[at.number]) + at.start;",
        "      if (at.guard && 1 + (*(const unsigned char *)p[k] != 0) != at.guard) break;",
        "    }",
        "    if (k < s->count) continue;",
        "    if (s->run) s->run(p);",
        "    else if (n - s->back >= first) n -= s->back + 1;",
        "  }",
        "}",
        "",
        timer_text(SECONDS, _STEPS, f"{RUN}(first, last, arena, data)"),
    ]
    return "\n".join(lines) + "\n"


def link(objects: Mapping[str, bytes]) -> bytes:
    """The shared library of object files by name, with threads for their loops; equal ones are linked once.

    Raises CompileError when a name is defined twice or missing.
    """
    team = team_objects()
    objects, flags = {**objects, **team}, (*_LINK_FLAGS, "-pthread" if team else "-fopenmp")
    parts = [b"link", *map(str.encode, (*flags, *compiler_facts()))]
    parts += [part for name, code in objects.items() for part in (name.encode(), hashlib.sha256(code).digest())]
    path = stored_path(b"\0".join(parts), ".linked")
    return read_sealed(path) or _link(objects, flags, path)


def _link(objects: Mapping[str, bytes], flags: Sequence[str], path: Path) -> bytes:
    with build_folder() as build:
        files = [build / f"{name}.o" for name in objects]
        for file, code in zip(files, objects.values(), strict=True):
            file.write_bytes(code)
        out = build / "network.so"
        run_compiler([*flags, *map(str, files), "-o", str(out), "-lm"], "to link the library", build)
        write_sealed(path, made := out.read_bytes())
        return made


def library_file(code: bytes) -> Path:
    """A file with the bytes of a shared library, to be loaded; it lives as long as the store of libraries."""
    path = stored_path(code, ".so")
    if read_sealed(path) != code:
        write_sealed(path, code)
    return path
