"""C with OpenMP: the text of a lowered program, compiled by gcc, run as a process of its own, and checked."""

import re
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import groupby
from math import inf, prod
from pathlib import Path

import numpy as np

from .expr import Axis, Call, Const, Expr, Load, Op, evaluate, loads, span, substitute, transform, walk
from .lower import Alloc, For, If, Lowered, Seq, Stmt, Store, Var, lower, simplify
from .program import BYTES, State, StepError, ordered

CTYPES = {"float32": "float", "int32": "int", "bool": "unsigned char"}
NO_MEMCPY = "-fno-tree-loop-distribute-patterns"  # it would keep sums out of registers
FLAGS = ("-O3", "-march=native", "-fopenmp", "-fno-math-errno", "-fno-trapping-math", NO_MEMCPY)
OPERATORS = {
    "min": "({0} < {1} ? {0} : {1})", "max": "({0} > {1} ? {0} : {1})", "select": "({} ? {} : {})", "!": "!{}",
    "cast": "(({1}){0})",
}  # fmt: skip
SLACK = 8  # elements behind each buffer, which a loop that goes beyond its row may read
ON_STACK = 1 << 16  # bytes of the largest buffer of a loop that is kept on the stack of a thread
VECTORS, LANES, UNROLLED = 12, 8, 128  # that a tile in registers has at most, and statements that are unrolled for it
BUILD_SECONDS, RUN_SECONDS, REPEAT_SECONDS, REPEATS = 30, 20, 0.05, 3


def in_registers(s: Stmt) -> Stmt:
    """`s` with tiles of sums in registers while parts of their reductions are computed (unroll and jam).

        for r: for i: for j: C[...] += ...                becomes, with i and r in two parts each,
        for i_0: for r_0: { acc[...] = C[...];  for r_1: for i_1: for j: acc[...] += ...;  C[...] = acc[...]; }

    gcc makes registers of `acc`, since all loops over it are unrolled.  The order in which anything is summed up stays.
    """
    loops, inner = list[For](), s
    while isinstance(inner, For) and inner.kind != "parallel":
        loops, inner = [*loops, inner], inner.body
    match s:
        case For() if loops and isinstance(inner, Store):
            return _in_tiles(loops, inner)
        case If(_, body) | Alloc(_, body) | For(_, _, body):
            return replace(s, body=in_registers(body))
        case Seq(parts):
            return Seq(tuple(map(in_registers, parts)))
    return s


def _in_tiles(loops: Sequence[For], store: Store) -> Stmt:
    """The loops around a store, those over its sums inside those of the reduction where they fit."""
    buffer, moving = store.buffer, set(walk(store.index))
    runs = [list(run) for _, run in groupby(loops, lambda f: f.var in moving)]
    summed = len(runs) > 1 and buffer in [load.op for load in loads(store.value)]
    if loops[-1].kind != "vectorize" or loops[-1].var not in moving or not summed:
        return _nested(loops, store)
    space, reduction = runs.pop(), runs.pop()
    space = [*runs.pop(), *space] if runs else space
    lanes = loops[-1].var.extent + loops[-1].beyond
    outer, tile, values = _cut(space, VECTORS * min(lanes, LANES))
    tile[-1:] = [replace(f, kind="vectorize") for f in tile[-1:]]
    place: Expr = Const(0)
    for f in tile:
        place = place * f.var.extent + f.var
    parts, unrolled, others = _cut(reduction, UNROLLED * lanes // (size := prod(f.var.extent for f in tile)))
    acc = Load(Op("acc", (Axis("at", size),), None, buffer.dtype, "acc"), (place,))
    index, value = [simplify(substitute(e, {**values, **others})) for e in (store.index, store.value)]
    value = transform(value, lambda e: acc if isinstance(e, Load) and e.op is buffer else None)
    work = _nested([*unrolled, *tile], Store(acc.op, place, value))
    begin, end = _nested(tile, Store(acc.op, place, Load(buffer, (index,)))), _nested(tile, Store(buffer, index, acc))
    return _nested([*[f for run in runs for f in run], *outer, *parts], Alloc(acc.op, Seq((begin, work, end))))


def _cut(loops: Sequence[For], most: int) -> tuple[list[For], list[For], dict[Axis, Expr]]:
    """The loops in outer parts and inner ones of at most `most` iterations, and what their variables are then."""
    outer, inner, values = list[For](), list[For](), dict[Axis, Expr]()
    for f in reversed(loops):
        n = f.var.extent + f.beyond
        part = max(d for d in range(1, min(n, most) + 1) if n % d == 0)
        first, second = Var(f"{f.var.name}_0", n // part), Var(f"{f.var.name}_1", part)
        outer[:0] = [For(first, "serial", f.body)] if part < n else []
        inner[:0] = [For(second, "unroll", f.body)] if part > 1 else []
        values[f.var] = (first if part < n else Const(0)) * part + (second if part > 1 else Const(0))
        most //= part
    return outer, inner, values


def _nested(loops: Sequence[For], body: Stmt) -> Stmt:
    return reduce(lambda inner, f: replace(f, body=inner), reversed(loops), body)


class Text:
    """Writes expressions and statements; names are made unique, since C knows neither dots nor two of a kind."""

    def __init__(self) -> None:
        self.names: dict[object, str] = {}

    def name(self, thing: Op | Var) -> str:
        base = re.sub(r"\W+", "_", thing.name).strip("_")
        return self.names.setdefault(thing, f"{base if base[:1].isalpha() else 'v' + base}_{len(self.names)}")

    def expr(self, e: Expr) -> str:
        match e:
            case Var():
                return self.name(e)
            case Const(value, "float32"):
                return "INFINITY" if value == inf else "-INFINITY" if value == -inf else f"{float(value)!r}f"
            case Const(value):
                return str(int(value))
            case Load(buffer, (index,)):
                return f"{self.name(buffer)}[{self.expr(index)}]"
            case Call(op, args, dtype):
                parts = [self.expr(a) for a in args]
                if op in ("//", "%"):
                    op = {"//": "/"}.get(op, op) if span(args[0])[0] >= 0 else {"//": "floordiv", "%": "floormod"}[op]
                if op in OPERATORS:
                    return OPERATORS[op].format(*parts, CTYPES[dtype])
                if not op.isalnum():
                    return f"({parts[0]} {op} {parts[1]})"
                return f"{op.replace('abs', 'fabs')}{'f' if dtype == 'float32' else ''}({', '.join(parts)})"
        raise ValueError(f"there is no C text for {e}")

    def stmt(self, s: Stmt, indent: str = "  ") -> list[str]:
        """The lines of a statement."""
        match s:
            case Seq(parts):
                return [line for p in parts for line in self.stmt(p, indent)]
            case Store(buffer, index, value):
                return [f"{indent}{self.name(buffer)}[{self.expr(index)}] = {self.expr(value)};"]
            case If(cond, body):
                return [f"{indent}if ({self.expr(cond)}) {{", *self.stmt(body, indent + "  "), f"{indent}}}"]
            case For(var, kind, body, beyond):
                v = self.name(var)
                head = f"{indent}for (int {v} = 0; {v} < {var.extent + beyond}; ++{v}) {{"
                return [*self.pragma(kind, var, indent), head, *self.stmt(body, indent + "  "), f"{indent}}}"]
            case Alloc(buffer, body):
                return [f"{indent}{{", *self.local(buffer, body, indent + "  "), f"{indent}}}"]
        raise ValueError(f"there is no C text for a {type(s).__name__}")

    def pragma(self, kind: str, var: Var, indent: str) -> list[str]:
        unroll = f"GCC unroll {min(var.extent, 65534)}"
        words = {"parallel": "omp parallel for", "vectorize": "omp simd", "unroll": unroll}
        return [f"{indent}#pragma {words[kind]}"] if kind in words else []

    def local(self, buffer: Op, body: Stmt, indent: str) -> list[str]:
        """A buffer of a loop and what is done with it."""
        ctype, n, name = CTYPES[buffer.dtype], buffer.shape[0] + SLACK, self.name(buffer)
        if n * BYTES[buffer.dtype] <= ON_STACK:
            return [f"{indent}{ctype} {name}[{n}] __attribute__((aligned(64)));", *self.stmt(body, indent)]
        room = f"aligned_alloc(64, ({n} * sizeof({ctype}) + 63) / 64 * 64)"
        return [f"{indent}{ctype} *restrict {name} = {room};", *self.stmt(body, indent), f"{indent}free({name});"]


FLOOR = """
static inline int floordiv(int a, int b) { return a / b - (a % b < 0); }
static inline int floormod(int a, int b) { return (a % b + b) % b; }
"""
INCLUDES = "".join(f"#include <{name}.h>\n" for name in ("math", "omp", "stdio", "stdlib", "string"))


def c_text(program: Lowered) -> str:
    """The source of `void program(...)`, whose arguments are those of the computation in order."""
    text, lines = Text(), [INCLUDES + FLOOR]
    args = [f"{CTYPES[b.dtype]} *restrict {text.name(b)}" for b in program.args]
    for b in program.own:
        lines.append(f"static {CTYPES[b.dtype]} {text.name(b)}[{b.shape[0] + SLACK}] __attribute__((aligned(64)));")
    lines += ["", f"void program({', '.join(args)}) {{", *text.stmt(in_registers(Seq(program.nests))), "}", ""]
    return "\n".join(lines)


def main_text(args: Sequence[Op]) -> str:
    """A `main` that reads the inputs, poisons the results, runs the program, writes the results, and prints times."""
    make, read, write = [], [], []
    for n, op in enumerate(args):
        size = prod(op.shape) * BYTES[op.dtype]
        make.append(f"  void *a{n} = aligned_alloc(64, ({size} + 127) / 64 * 64); memset(a{n}, 255, {size});")
        if op.body is None:
            read.append(f"  if (fread(a{n}, 1, {size}, in) != {size}) return 3;")
        else:
            write.append(f"  fwrite(a{n}, 1, {size}, out);")
    call = f"program({', '.join(f'a{n}' for n in range(len(args)))});"
    return f"""
int main(int argc, char **argv) {{
  FILE *in = fopen(argv[1], "rb"), *out = fopen(argv[2], "wb");
  if (argc != 3 || !in || !out) return 2;
{chr(10).join(make + read)}
  {call}
{chr(10).join(write)}
  fclose(out);
  double start = omp_get_wtime();
  {call}
  // Of a fast program several calls are made between two looks at the clock; a busy machine makes any of them slow.
  int batch = omp_get_wtime() - start < 1e-4 ? 16 : 1;
  for (int repeat = 0; repeat < {REPEATS}; ++repeat) {{
    double seconds, calls = 0;
    start = omp_get_wtime();
    do {{
      for (int i = 0; i < batch; ++i) {call}
      calls += batch;
      seconds = omp_get_wtime() - start;
    }} while (seconds < {REPEAT_SECONDS});
    printf("%.9g\\n", seconds / calls);
  }}
}}
"""


@dataclass(frozen=True)
class Result:
    """What measuring gave: seconds of each repeat, or an error by its number in records; `all_cost` is everything."""

    costs: tuple[float, ...]
    error_no: int = 0
    message: str = ""
    all_cost: float = 0.0
    timestamp: int = 0

    @property
    def cost(self) -> float:
        return float(np.mean(self.costs))


class Failure(Exception):
    """A program that has no time: the number of the error in records, and what happened."""


INSTANTIATION, COMPILE, RUNTIME, WRONG_ANSWER, BUILD_TIMEOUT, RUN_TIMEOUT = 1, 2, 4, 5, 6, 7
FAILED = (1e10,)


class Measurer:
    """Builds and runs programs of one computation, one at a time, all on the same random inputs."""

    def __init__(self, args: Sequence[Op], rng: np.random.Generator) -> None:
        self.args = args
        self.folder = tempfile.TemporaryDirectory(prefix="mini_ansor_")
        inputs = {}
        for op in [op for op in args if op.body is None]:
            limit = {"float32": 0, "int32": 8, "bool": 2}[op.dtype]
            drawn = rng.integers(0, limit, op.shape) if limit else rng.uniform(-1, 1, op.shape)
            inputs[op.name] = drawn.astype(op.dtype)
        Path(self.folder.name, "inputs").write_bytes(b"".join(a.tobytes() for a in inputs.values()))
        self.reference = evaluate(ordered(args), inputs)

    def measure(self, state: State) -> Result:
        """Lower, compile, run, compare.  What goes wrong is part of the result."""
        start, error, message = time.time(), 0, ""
        try:
            costs: tuple[float, ...] = self._measured(state)
        except StepError as e:
            costs, error, message = FAILED, INSTANTIATION, str(e)
        except Failure as e:
            costs, error, message = FAILED, *e.args
        return Result(costs, error, message, time.time() - start, int(time.time()))

    def _measured(self, state: State) -> tuple[float, ...]:
        folder = Path(self.folder.name)
        (folder / "program.c").write_text(c_text(lower(state)) + main_text(self.args))
        self._run(["gcc", *FLAGS, "program.c", "-o", "program", "-lm"], BUILD_SECONDS, COMPILE, BUILD_TIMEOUT)
        printed = self._run(["./program", "inputs", "outputs"], RUN_SECONDS, RUNTIME, RUN_TIMEOUT)
        data = (folder / "outputs").read_bytes()
        for op in [op for op in self.args if op.body is not None]:
            got: np.ndarray = np.frombuffer(data, op.dtype, count=prod(op.shape)).reshape(op.shape)
            data = data[got.nbytes :]
            wrong = difference(got, self.reference[op.key])
            if wrong:
                raise Failure(WRONG_ANSWER, f"{op.name}: {wrong}")
        return tuple(float(line) for line in printed.split())

    def _run(self, command: list[str], seconds: float, failed: int, late: int) -> str:
        """What a command prints.  Raises Failure with the number `failed`, or `late`."""
        try:
            done = subprocess.run(command, cwd=self.folder.name, capture_output=True, text=True, timeout=seconds)
        except subprocess.TimeoutExpired as e:
            raise Failure(late, f"{command[0]} took longer than {seconds} s") from e
        if done.returncode:
            raise Failure(failed, f"{command[0]} ended with {done.returncode} {done.stderr}")
        return done.stdout


def difference(got: np.ndarray, want: np.ndarray) -> str:
    """Where a result in float32 is further from one in float64 than rounding explains; "" if nowhere."""
    atol = 1e-5 * max(1.0, float(np.abs(want).max(initial=0)))
    close = np.isclose(got, want, rtol=1e-4, atol=atol) if got.dtype == np.float32 else got == want
    if close.all():
        return ""
    worst = tuple(int(i) for i in np.argwhere(~close)[0])
    return f"{np.count_nonzero(~close)} elements are wrong, at {worst} {got[worst]} instead of {want[worst]}"
