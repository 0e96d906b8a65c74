"""C with OpenMP: the text of a lowered program, compiled by gcc, run as a process of its own, and checked."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, prod
from pathlib import Path

import numpy as np

from .expr import Binary, Call, Cast, Const, Expr, Load, Not, Op, Select, evaluate, span
from .lower import Alloc, For, If, Lowered, Seq, Stmt, Store, Var, lower
from .program import BYTES, State, StepError, ordered

CTYPES = {"float32": "float", "int32": "int", "bool": "unsigned char"}
NUMPY = {"float32": np.float32, "int32": np.int32, "bool": np.bool_}
FLAGS = ("-O3", "-march=native", "-fopenmp", "-fno-math-errno", "-fno-trapping-math")
ON_STACK = 1 << 16
"""Bytes of the largest buffer of a loop that is kept on the stack of a thread."""
BUILD_SECONDS, RUN_SECONDS, REPEAT_SECONDS, REPEATS = 30, 20, 0.05, 3


class Text:
    """Writes expressions and statements; names are made unique, since C knows neither dots nor two of a kind."""

    def __init__(self) -> None:
        self.names: dict[object, str] = {}

    def name(self, thing: Op | Var) -> str:
        if thing not in self.names:
            base = "".join(c if c.isalnum() else "_" for c in thing.name).strip("_") or "x"
            base = base if base[0].isalpha() else f"v{base}"
            taken = set(self.names.values())
            self.names[thing] = next(n for n in (f"{base}_{i}" for i in range(len(taken) + 1)) if n not in taken)
        return self.names[thing]

    def expr(self, e: Expr) -> str:
        match e:
            case Var():
                return self.name(e)
            case Const(value, "float32"):
                return "INFINITY" if value == inf else "-INFINITY" if value == -inf else f"{float(value)!r}f"
            case Const(value):
                return str(int(value))
            case Binary("min" | "max" as op, a, b):
                x, y = self.expr(a), self.expr(b)
                return f"({x} {'<' if op == 'min' else '>'} {y} ? {x} : {y})"
            case Binary("//" | "%" as op, a, b) if span(a)[0] < 0:
                return f"{'floordiv' if op == '//' else 'floormod'}({self.expr(a)}, {self.expr(b)})"
            case Binary(op, a, b):
                return f"({self.expr(a)} {'/' if op == '//' else op} {self.expr(b)})"
            case Not(a):
                return f"!{self.expr(a)}"
            case Select(cond, a, b):
                return f"({self.expr(cond)} ? {self.expr(a)} : {self.expr(b)})"
            case Cast(dtype, a):
                return f"(({CTYPES[dtype]}){self.expr(a)})"
            case Call(func, args, "float32"):
                return f"{func.replace('abs', 'fabs')}f({', '.join(map(self.expr, args))})"
            case Load(buffer, (index,)):
                return f"{self.name(buffer)}[{self.expr(index)}]"
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
            case For(var, kind, body):
                v = self.name(var)
                head = f"{indent}for (int {v} = 0; {v} < {var.extent}; ++{v}) {{"
                return [*self.pragma(kind, var, indent), head, *self.stmt(body, indent + "  "), f"{indent}}}"]
            case Alloc(buffer, body):
                return [f"{indent}{{", *self.local(buffer, body, indent + "  "), f"{indent}}}"]
        raise ValueError(f"there is no C text for a {type(s).__name__}")

    def pragma(self, kind: str, var: Var, indent: str) -> list[str]:
        words = {
            "parallel": "omp parallel for",
            "vectorize": "omp simd",
            "unroll": f"GCC unroll {min(var.extent, 65534)}",
        }
        return [f"{indent}#pragma {words[kind]}"] if kind in words else []

    def local(self, buffer: Op, body: Stmt, indent: str) -> list[str]:
        """A buffer of a loop and what is done with it."""
        ctype, n, name = CTYPES[buffer.dtype], buffer.shape[0], self.name(buffer)
        if n * BYTES[buffer.dtype] <= ON_STACK:
            return [f"{indent}{ctype} {name}[{n}] __attribute__((aligned(64)));", *self.stmt(body, indent)]
        room = f"aligned_alloc(64, ({n} * sizeof({ctype}) + 63) / 64 * 64)"
        return [f"{indent}{ctype} *restrict {name} = {room};", *self.stmt(body, indent), f"{indent}free({name});"]


HEAD = """\
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static inline int floordiv(int a, int b) { return a / b - (a % b < 0); }
static inline int floormod(int a, int b) { return (a % b + b) % b; }
"""


def c_text(program: Lowered) -> str:
    """The source of `void program(...)`, whose arguments are those of the computation in order."""
    text = Text()
    lines = [HEAD]
    args = [f"{CTYPES[b.dtype]} *restrict {text.name(b)}" for b in program.args]
    for b in program.own:
        lines.append(f"static {CTYPES[b.dtype]} {text.name(b)}[{b.shape[0]}] __attribute__((aligned(64)));")
    lines += ["", f"void program({', '.join(args)}) {{"]
    for nest in program.nests:
        lines += text.stmt(nest)
    return "\n".join([*lines, "}", ""])


def main_text(args: Sequence[Op]) -> str:
    """A `main` that reads the inputs, poisons the results, runs the program, writes the results, and prints times."""
    sizes = [prod(op.shape) * BYTES[op.dtype] for op in args]
    make, read, write = [], [], []
    for n, (op, size) in enumerate(zip(args, sizes, strict=True)):
        make.append(f"  void *a{n} = aligned_alloc(64, ({size} + 63) / 64 * 64); memset(a{n}, 255, {size});")
        if op.body is None:
            read.append(f"  if (fread(a{n}, 1, {size}, in) != {size}) return 3;")
        else:
            write.append(f"  fwrite(a{n}, 1, {size}, out);")
    call = f"program({', '.join(f'a{n}' for n in range(len(args)))});"
    return f"""
static double now(void) {{ struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + 1e-9 * t.tv_nsec; }}

int main(int argc, char **argv) {{
  FILE *in = fopen(argv[1], "rb"), *out = fopen(argv[2], "wb");
  if (argc != 3 || !in || !out) return 2;
{chr(10).join(make + read)}
  {call}
{chr(10).join(write)}
  fclose(out);
  double start = now();
  {call}
  // Of a fast program several calls are made between two looks at the clock; a busy machine makes any of them slow.
  int batch = now() - start < 1e-4 ? 16 : 1;
  for (int repeat = 0; repeat < {REPEATS}; ++repeat) {{
    double seconds, calls = 0;
    start = now();
    do {{
      for (int i = 0; i < batch; ++i) {call}
      calls += batch;
      seconds = now() - start;
    }} while (seconds < {REPEAT_SECONDS});
    printf("%.9g\\n", seconds / calls);
  }}
}}
"""


# ------------------------------------------------------------------------------------------------------- measurement


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


INSTANTIATION, COMPILE, RUNTIME, WRONG_ANSWER, BUILD_TIMEOUT, RUN_TIMEOUT = 1, 2, 4, 5, 6, 7
FAILED = (1e10,)


class Measurer:
    """Builds and runs programs of one computation, one at a time, all on the same random inputs."""

    def __init__(self, args: Sequence[Op], rng: np.random.Generator) -> None:
        self.args = args
        self.folder = tempfile.TemporaryDirectory(prefix="mini_ansor_")
        inputs = {op.name: _random(op, rng) for op in args if op.body is None}
        Path(self.folder.name, "inputs").write_bytes(b"".join(a.tobytes() for a in inputs.values()))
        self.reference = evaluate(ordered(args), inputs)

    def measure(self, state: State) -> Result:
        """Lower, compile, run, compare.  What goes wrong is part of the result."""
        start = time.time()
        costs, error, message = self._measured(state)
        return Result(costs, error, message, time.time() - start, int(time.time()))

    def _measured(self, state: State) -> tuple[tuple[float, ...], int, str]:
        try:
            source = c_text(lower(state)) + main_text(self.args)
        except StepError as e:
            return FAILED, INSTANTIATION, str(e)
        folder = Path(self.folder.name)
        (folder / "program.c").write_text(source)
        try:
            command = ["gcc", *FLAGS, "program.c", "-o", "program", "-lm"]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=BUILD_SECONDS)
        except subprocess.TimeoutExpired:
            return FAILED, BUILD_TIMEOUT, f"gcc took longer than {BUILD_SECONDS} s"
        if done.returncode:
            return FAILED, COMPILE, done.stderr
        try:
            command = [str(folder / "program"), "inputs", "outputs"]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=RUN_SECONDS)
        except subprocess.TimeoutExpired:
            return FAILED, RUN_TIMEOUT, f"it ran longer than {RUN_SECONDS} s"
        if done.returncode:
            return FAILED, RUNTIME, f"it ended with {done.returncode}"
        wrong = self._wrong((folder / "outputs").read_bytes())
        costs = tuple(float(line) for line in done.stdout.split())
        return (FAILED, WRONG_ANSWER, wrong) if wrong else (costs, 0, "")

    def _wrong(self, data: bytes) -> str:
        """What is wrong with the results, in a sentence; nothing if they are right."""
        for op in [op for op in self.args if op.body is not None]:
            got: np.ndarray = np.frombuffer(data, NUMPY[op.dtype], count=prod(op.shape)).reshape(op.shape)
            data = data[got.nbytes :]
            message = difference(got, self.reference[op.key])
            if message:
                return f"{op.name}: {message}"
        return ""


def difference(got: np.ndarray, want: np.ndarray) -> str:
    """Where a result in float32 is further from one in float64 than rounding explains; "" if nowhere."""
    if got.dtype != np.float32:
        return "" if np.array_equal(got, want) else "it is not equal"
    close = np.isclose(got, want, rtol=1e-4, atol=1e-5 * max(1.0, float(np.abs(want).max(initial=0))))
    if close.all():
        return ""
    worst = tuple(int(i) for i in np.argwhere(~close)[0])
    return f"{np.count_nonzero(~close)} elements are wrong, at {worst} {got[worst]:g} instead of {want[worst]:g}"


def _random(op: Op, rng: np.random.Generator) -> np.ndarray:
    if op.dtype == "float32":
        return rng.uniform(-1, 1, op.shape).astype(np.float32)
    return rng.integers(0, 2 if op.dtype == "bool" else 8, op.shape).astype(NUMPY[op.dtype])
