"""The oracle of computations over all dtypes is right where that is known by hand; a planted fault is found."""

from __future__ import annotations

import itertools
import shutil
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import te_lite as te
import te_lite.topi
from te_lite.expr.dtype import promote
from tests.nonempty import nonempty

from .batch import Job, run_batch
from .bounded import Value, mismatch, promoted
from .description import Dag, Expr, Input, Stage
from .kinds import KINDS
from .numpy_oracle import evaluate
from .values import WIDE

NAN, INF = np.nan, np.inf
X, Y = ("load", "x", ("axis", "i")), ("load", "y", ("axis", "i"))


def element(body: Expr, x: list[Any], y: list[Any], dtypes: tuple[str, str]) -> Value:
    """What the oracle says of an expression of x and y at each of their elements."""
    inputs = {"x": np.array(x, dtypes[0]), "y": np.array(y, dtypes[1])}
    stage = Stage(("t",), (("i", len(x)),), (body,))
    given = tuple([Input(name, (len(x),), d) for name, d in zip(inputs, dtypes, strict=True)])
    return evaluate(Dag(given, (stage,), ("t",)), inputs)["t"]


BY_HAND: list[tuple[Expr, tuple[str, str], list[Any], list[Any], str, list[Any]]] = [
    (("fmod", X, Y), ("float32", "float32"), [5.0, -5.0, INF, 1.0, 5.0], [INF, 3.0, 2.0, 0.0, -3.0], "float32",
     [5.0, -2.0, NAN, NAN, 2.0]),
    (("fmod", X, Y), ("int8", "int8"), [7, -7, 7, -128], [3, 3, 0, -1], "int8", [1, -1, 0, 0]),
    (("+", X, Y), ("bfloat16", "float16"), [1.0, 2.0], [2.0**-11, 0.5], "float32", [1 + 2.0**-11, 2.5]),
    (("+", X, Y), ("int8", "uint8"), [-1, 5], [1, 255], "uint8", [0, 4]),
    (("*", X, Y), ("int32", "uint32"), [-1, 3], [2, 2**31], "uint32", [2**32 - 2, 2**31]),
    (("<", X, Y), ("int32", "uint32"), [-1, 1], [1, 2], "bool", [False, True]),
    (("call", "bit_xor", X, Y), ("uint16", "int8"), [0xFF00, 1], [-1, 1], "uint16", [0x00FF, 0]),
    (("call", "pow", X, Y), ("int8", "int8"), [3, 2, 2, -1, 0], [5, 7, -1, -3, -2], "int8", [-13, -128, 0, -1, 0]),
    (("cast", "uint8", X), ("float64", "int8"), [-0.5, 255.9, 256.0, NAN], [0] * 4, "uint8", [0, 255, 255, 0]),
    (("*", X, X), ("bfloat16", "int8"), [1.5, INF], [0] * 2, "bfloat16", [2.25, INF]),
]  # fmt: skip


@pytest.mark.parametrize("case", BY_HAND, ids=lambda case: f"{case[0][:2]} {case[1]}")
def test_by_hand(case: Any) -> None:
    body, dtypes, x, y, dtype, want = case
    with np.errstate(all="ignore"):
        found = element(body, x, y, dtypes)
    assert found.dtype == dtype and (np.broadcast_to(found.e, found.v.shape) == 0).all()
    np.testing.assert_array_equal(found.v, np.array(want))


@pytest.mark.parametrize("above", [-INF, -3.0])
def test_a_zero_of_open_sign_divides(above: float) -> None:
    """The smaller of -0.0 and 0.0 may be either, and so may the infinity; what is divided by 0.0 is known."""
    quotient: Expr = ("/", ("const", above, "float32"), ("min", X, ("const", 0.0, "float32")))
    with np.errstate(all="ignore"):
        found = element(quotient, [-0.0, 0.0, 1.0], [0] * 3, ("float32", "int8"))
    assert found.known.tolist() == [False, True, True] and found.v[1:].tolist() == [-INF, -INF]
    for first in (-INF, INF):
        assert mismatch(found, np.array([first, -INF, -INF], "float32")) is None
    assert mismatch(found, np.array([INF, -INF, INF], "float32")) is not None


def test_a_sum_of_bfloat16_is_rounded_once() -> None:
    """300 ones are 300 in float32, and 256 where every step rounds."""
    stage = Stage(("t",), (), (("load", "x", ("axis", "r")),), "sum", (("r", 300),))
    dag = Dag((Input("x", (300,), "bfloat16"),), (stage,), ("t",))
    found = evaluate(dag, {"x": np.ones(300, ml_dtypes.bfloat16)})["t"]
    assert found.v.shape == () and abs(found.v.item() - 300) <= 2 and found.e.item() < 4


def test_running_folds_and_their_ends() -> None:
    extent: Expr = ("+", ("axis", "i"), ("const", 1, "int32"))
    stage = Stage(("t",), (("i", 4),), (("load", "x", ("axis", "r")),), "max", (("r", 4),), None, extent)
    dag = Dag((Input("x", (4,), "int16"),), (stage,), ("t",))
    x = np.array([3, -1, 7, 2], "int16")
    assert evaluate(dag, {"x": x})["t"].v.tolist() == [3, 3, 7, 7]
    longer = Dag(dag.inputs, (Stage(**{**vars(stage), "extent": ("const", 5, "int32")}),), ("t",))
    with pytest.raises(ValueError, match="leaves 1 to 4"):
        evaluate(longer, {"x": x})


def test_operands_meet_as_the_language_says() -> None:
    for a, b in nonempty(itertools.product(WIDE.dtypes, repeat=2)):
        assert promoted(a, b) == promote(a, b), (a, b)


@pytest.mark.long
@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler")
def test_a_planted_fault_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remainders with the sign of the divisor instead of the dividend."""
    jobs = [Job(seed, KINDS["wide"].draw(seed), ("c",)) for seed in (99, 109, 111, 121)]
    monkeypatch.setattr(te_lite.topi, "mod", te.floormod)
    for outcome in nonempty(run_batch(jobs)):
        assert {f.kind for f in outcome.findings} == {"mismatch"}
    monkeypatch.undo()
    for outcome in nonempty(run_batch(jobs)):
        assert not outcome.findings
