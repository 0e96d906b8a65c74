"""Random computations and networks compute what plain NumPy says, on every way through the project; and once broken
ones do again.  `make fuzz` takes more seeds, `python -m tests.whole_way` any range of them.
"""

from __future__ import annotations

import math
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from codegen_cuda.program.cuda_program import CudaProgram
from te_lite.loops.stmt import Buffer

from . import asks, numpy_oracle
from .asks import AskJob, run_asks
from .bounded import Value, compared, floats, mismatch
from .description import Dag, Expr, Input, Stage
from .farm import farm
from .guarded import Arrays
from .kinds import KINDS
from .named import Tasks
from .outcome import Outcome
from .random_inputs import random_inputs
from .run_cuda import apart

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not on PATH")
QUICK, QUICK_GRAPHS, QUICK_MODELS = 8, 1, 3
"""Seeds of computations, of networks and of ONNX models in the fast suite; `long` takes twice as many more."""
PARTS = [0, *[pytest.param(part, marks=pytest.mark.long) for part in (1, 2)]]
INF, NAN = math.inf, math.nan


def findings(*options: str) -> str:
    """What a run says, when it found something; nothing otherwise.  It is a process of its own, for it forks."""
    command = [sys.executable, "-m", "tests.whole_way", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    return done.stdout + done.stderr if done.returncode else ""


def seeds(first: int, count: int) -> tuple[str, str]:
    return "--seeds", f"{first}:{first + count}"


@pytest.mark.parametrize("part", PARTS)
def test_random_computations(part: int) -> None:
    assert not findings(*seeds(part * QUICK, QUICK), "--batch", "20")


@pytest.mark.parametrize("part", PARTS)
def test_random_computations_over_all_dtypes(part: int) -> None:
    assert not findings(*seeds(part * QUICK, QUICK), "--batch", "20", "--wide")


@pytest.mark.parametrize("part", PARTS)
def test_random_onnx_models(part: int) -> None:
    assert not findings(*seeds(part * QUICK_MODELS, QUICK_MODELS), "--models")


@pytest.mark.parametrize("part", PARTS)
def test_random_networks(part: int) -> None:
    assert not findings(*seeds(part * QUICK_GRAPHS, QUICK_GRAPHS), "--graphs")


@pytest.mark.long
def test_a_few_special_values() -> None:
    """By these seeds a law of integers taken for floats shows, and a vector maximum that forgets NaN."""
    assert not findings("--seeds", "16,18", "--special")


@pytest.mark.long
def test_first_rounds_of_searches() -> None:
    """A dozen tasks: two computations and four kernels of a layer of GPT-2, on both targets."""
    small = {"num_layers": 1, "hidden": 24, "num_heads": 3, "seq_len": 9, "vocab_size": 50, "max_positions": 9}
    given = [asks.drawn(1), asks.drawn(2), Tasks("gpt2", options=small, only=(0, 3, 4, 7))]
    outcomes = run_asks([AskJob(seed, g) for seed, g in enumerate(given)])
    assert [o.findings for o in outcomes] == [[], [], []]
    programs = sum([o.programs for o in outcomes], Counter())
    assert programs["tasks for c"] == programs["tasks for cuda"] == 6 and programs["programs asked for"] > 48


@pytest.mark.slow
def test_special_values() -> None:
    assert not findings(*seeds(0, 50), "--special")


@pytest.mark.slow
def test_what_once_failed() -> None:
    assert not findings("--corpus")


MORE = [
    ((), 200),
    (("--special",), 100),
    (("--graphs",), 40),
    (("--asks",), 24),
    (("--wide",), 200),
    (("--models",), 60),
]


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
@pytest.mark.parametrize(("kind", "count"), MORE)
def test_more(kind: tuple[str, ...], count: int, part: int) -> None:
    assert not findings(*seeds(1000 + part * count, count), *kind)


def test_the_descriptions_survive_json() -> None:
    for kind in KINDS.values():
        for seed in range(40):
            given = kind.draw(seed)
            assert kind.read(kind.write(given)) == given


# ------------------------------------------------------------------------------------ the oracle and the farm


def axis(name: str) -> tuple[str, str]:
    return ("axis", name)


def test_the_oracle_knows_a_matrix_product_and_its_rounding() -> None:
    product = ("*", ("load", "a", axis("i"), axis("r")), ("load", "b", axis("r"), axis("j")))
    stage = Stage(("c",), (("i", 3), ("j", 5)), (product,), "sum", (("r", 7),))
    dag = Dag((Input("a", (3, 7), "float32", "wide"), Input("b", (7, 5), "float32", "wide")), (stage,), ("c",), 4)
    inputs = random_inputs(dag)
    want = numpy_oracle.evaluate(dag, inputs)["c"]
    right = inputs["a"].astype("float64") @ inputs["b"]
    assert mismatch(want, right.astype("float32")) is None
    off = right.astype("float32")
    off[1, 2] *= np.float32(1 + 1e-4)
    assert "[1, 2]" in (mismatch(want, off) or "")


def test_the_oracle_wraps_integers_and_leaves_out_what_rounding_decides() -> None:
    third = ("/", ("load", "x", axis("i")), ("const", 3.0, "float32"))
    exact = Stage(("n",), (("i", 4),), (("*", ("load", "k", axis("i")), ("const", 100, "int8")),))
    unsure = Stage(("u",), (("i", 4),), ((">=", ("*", third, ("const", 3.0, "float32")), ("load", "x", axis("i"))),))
    dag = Dag((Input("x", (4,), "float32"), Input("k", (4,), "int8")), (exact, unsure), ("n", "u"))
    inputs = {"x": np.array([1, 2, 5, 7], "float32"), "k": np.array([1, 2, 3, -2], "int8")}
    found = numpy_oracle.evaluate(dag, inputs)
    assert found["n"].v.tolist() == [100, -56, 44, 56] and compared(found["n"]) == 1
    assert compared(found["u"]) == 0


def element(dtype: str, body: Expr, x: Sequence[float], y: Sequence[float] = ()) -> Value:
    """What the oracle says of an expression of x and y at each of their elements."""
    inputs = {"x": np.array(x, dtype), **({"y": np.array(y, dtype)} if y else {})}
    stage = Stage(("t",), (("i", len(x)),), (body,))
    dag = Dag(tuple([Input(name, (len(x),), dtype) for name in inputs]), (stage,), ("t",))
    return numpy_oracle.evaluate(dag, inputs)["t"]


X, Y = ("load", "x", axis("i")), ("load", "y", axis("i"))
BIG, MOST = 3e38, 3.4028234663852886e38
FINITE = [0.0, -0.0, 1.0, -2.5]
EDGES: dict[str, tuple[Expr, list[float], list[float], list[Any]]] = {
    "sum": (("+", X, Y), [INF, INF, NAN, 1.0, BIG], [1.0, -INF, 1.0, -INF, BIG], [INF, NAN, NAN, -INF, "open"]),
    "product": (("*", X, Y), [INF, INF, -INF, BIG], [0.0, -2.0, -INF, -BIG], [NAN, -INF, INF, "open"]),
    "quotient": (("/", X, Y), [1.0, 1.0, -0.0, 0.0, INF, 3.0, BIG], [0.0, -0.0, INF, 0.0, INF, -INF, 1e-3],
                 [INF, -INF, 0.0, NAN, NAN, 0.0, INF]),
    "floor": (("//", X, Y), [1.0, -1.0, INF, NAN], [0.0, INF, 2.0, 1.0], [INF, -1.0, NAN, NAN]),
    "remainder": (("%", X, Y), [1.0, INF, 1.0, MOST], [0.0, 2.0, INF, -1.5], [NAN, NAN, 1.0, 0.0]),
    "max": (("max", X, Y), [NAN, 1.0, -INF, INF], [1.0, NAN, -2.0, 3.0], [NAN, NAN, -2.0, INF]),
    "sign of the larger zero": (("/", ("const", 1.0, "float32"), ("max", X, Y)), FINITE, [-0.0, -0.0, 0.0, -0.0],
                                ["open", -INF, 1.0, -INF]),
    "less": (("<", X, Y), [NAN, INF, -INF, 0.0], [1.0, INF, INF, -0.0], [False, False, True, False]),
    "unequal": (("!=", X, Y), [NAN, INF], [NAN, INF], [True, False]),
    "cast": (("cast", "int8", X), [NAN, INF, -INF, 127.9, -1e9, -1.5], [], [0, 127, -128, 127, -128, -1]),
    "cast to half": (("cast", "float16", X), [BIG, -BIG, 65504.0], [], [INF, -INF, 65504.0]),
    "log": (("call", "log", X), [0.0, -0.0, -1.0, INF, NAN], [], [-INF, -INF, NAN, INF, NAN]),
    "rsqrt": (("call", "rsqrt", X), [0.0, -0.0, INF], [], [INF, -INF, 0.0]),
    "exp": (("call", "exp", X), [1e3, -INF, INF, -1e3], [], [INF, 0.0, INF, 0.0]),
    "round": (("call", "round", X), [0.5, 1.5, -2.5, INF], [], [0.0, 2.0, -2.0, INF]),
    "isnan": (("call", "isnan", X), [NAN, INF, 0.0], [], [True, False, False]),
}  # fmt: skip


@pytest.mark.parametrize("name", EDGES)
def test_the_oracle_knows_the_page_of_arithmetic(name: str) -> None:
    """docs/arithmetic.md, by hand; `open` is what it leaves open."""
    body, x, y, wanted = EDGES[name]
    with np.errstate(all="ignore"):
        found = element("float32", body, x, y)
    known = np.broadcast_to(found.known, found.v.shape)
    np.testing.assert_array_equal([v if k else "open" for v, k in zip(found.v.tolist(), known, strict=True)],
                                  [*map(str, wanted)] if "open" in wanted else wanted)  # fmt: skip


FOLDS: dict[str, tuple[list[list[float]], list[Any]]] = {
    "sum": ([[1, INF, 2], [INF, -INF, 1], [NAN, 1, 1], [BIG, BIG, 1], [BIG, BIG, INF]],
            [INF, NAN, NAN, "open", "open"]),
    "prod": ([[2, -INF, 2], [INF, 0, 1], [NAN, 0, 1], [1e-30, 1e-30, INF]], [-INF, NAN, NAN, "open"]),
    "max": ([[1, INF, 2], [-INF, -INF, -INF], [NAN, INF, 1]], [INF, -INF, NAN]),
    "min": ([[1, INF, 2], [INF, INF, INF], [NAN, -INF, 1]], [1.0, INF, NAN]),
    "argmax": ([[1, INF, INF], [-INF, -INF, -INF], [INF, NAN, NAN], [1, 2, 2]], [1, 0, 1, 1]),
    "argmin": ([[1, -INF, -INF], [INF, INF, INF], [-INF, 1, NAN], [2, 2, 1]], [1, 0, 2, 2]),
}  # fmt: skip


@pytest.mark.parametrize("name", FOLDS)
def test_the_oracle_knows_reductions_of_special_rows(name: str) -> None:
    data, wanted = FOLDS[name]
    at: Expr = ("load", "x", axis("i"), axis("r"))
    body = (axis("r"), at) if name.startswith("arg") else (at,)
    names = ("t", "t_v1")[: len(body)]
    stage = Stage(names, (("i", len(data)),), body, name, (("r", 3),))
    dag = Dag((Input("x", (len(data), 3), "float32"),), (stage,), names)
    found = numpy_oracle.evaluate(dag, {"x": np.array(data, "float32")})["t"]
    assert [str(v) if k else "open" for v, k in zip(found.v.tolist(), found.known, strict=True)] == [*map(str, wanted)]
    assert mismatch(found, found.v.astype("int32" if name.startswith("arg") else "float32")) is None


def test_infinities_and_nan_are_compared_as_classes() -> None:
    want = floats(np.array([NAN, INF, -INF, 1.0]), np.zeros(4), "float32")
    for wrong in ([1.0, INF, -INF, 1.0], [NAN, NAN, -INF, 1.0], [NAN, INF, INF, 1.0], [NAN, INF, -INF, NAN],
                  [NAN, 3.4e38, -INF, 1.0]):  # fmt: skip
        assert mismatch(want, np.array(wrong, "float32")) is not None
    assert mismatch(want, np.array([-NAN, INF, -INF, 1.0], "float32")) is None


def test_what_is_not_written_shows_where_nan_is_wanted() -> None:
    for dtype in ("float16", "float32", "float64"):
        arrays = Arrays((Buffer("y", dtype, (3,)),), ["y"], {})
        wanted = {"y": floats(np.full(3, NAN), np.zeros(3), dtype)}
        arrays.views[0][:2] = NAN
        assert "not written" in (arrays.wrong(wanted) or "")
        with np.errstate(invalid="ignore"):
            arrays.views[0][2] = np.array(INF, dtype) * 0
        assert arrays.wrong(wanted) is None


def test_the_oracle_keeps_indices_exact_until_they_meet_data() -> None:
    lowest = ("call", "abs", ("const", -(2**31), "int32"))
    square = ("*", ("*", axis("i"), ("const", 2**20, "int32")), ("const", 2**12, "int32"))
    bodies = {
        "a": ("cast", "float64", lowest), "b": lowest, "c": ("//", square, ("const", 2**30, "int32")),
        "d": ("+", ("load", "k", axis("i")), square), "e": ("//", ("call", "floor", square), ("const", 2**30, "int32")),
    }  # fmt: skip
    dag = Dag((Input("k", (2,), "int32"),), tuple([Stage((n,), (("i", 2),), (b,)) for n, b in bodies.items()]), ("a",))
    found = numpy_oracle.evaluate(dag, {"k": np.array([5, 6], "int32")})
    values = {n: found[n].v.tolist() if n != "a" and n != "b" else found[n].v.flat[0].item() for n in bodies}
    assert values == {"a": 2.0**31, "b": -(2**31), "c": [0, 4], "d": [5, 6], "e": [0, 0]}


def test_members_of_a_grid_keep_their_names_in_a_batch() -> None:
    source = "__shared__ float y[4];\ny[threadIdx.x] = x[blockIdx.y] + y[0];"
    text = apart(CudaProgram("p", source, (), (), (), ()))
    assert text == "__shared__ float y_of_p[4];\ny_of_p[threadIdx.x] = x[blockIdx.y] + y_of_p[0];"


@pytest.mark.long
def test_a_crash_and_a_hang_are_pinned_to_their_seed() -> None:
    outcomes = {o.seed: o for o in farm(_faulty, [0, 1, 2, 3, 4, 5], 2, 3, 1.5)}
    assert sorted(outcomes) == [0, 1, 2, 3, 4, 5]
    kinds = {seed: [f.kind for f in o.findings] for seed, o in outcomes.items()}
    assert kinds == {0: [], 1: ["crash"], 2: [], 3: [], 4: ["hang"], 5: []}
    assert outcomes[4].findings[0].phase == "run C"


def _faulty(seeds: list[int], watch: Any) -> list[Outcome]:
    for seed in seeds:
        watch(f"seed {seed}: run C")
        if seed == 1:
            raise SystemExit(3)
        while seed == 4:
            pass
    return [Outcome(seed) for seed in seeds]
