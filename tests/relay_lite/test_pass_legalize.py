"""`Legalize`: many tensors are put together a few at a time, and mean the same."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import codegen_c
import te_lite as te
from relay_lite import reference
from relay_lite.compiler.optimize import optimize
from relay_lite.ir.make import call, var
from relay_lite.ir.nodes import Function, Tuple
from relay_lite.ir.visit import is_op, post_order
from relay_lite.transform import Legalize, PassContext
from te_lite.lowering.lower import lower
from te_lite.meaning.reference import evaluate
from te_lite.topi.transform import MOST_PARTS


@pytest.mark.parametrize("op", ["concatenate", "stack"])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("count", [1, MOST_PARTS, MOST_PARTS + 1, 3 * MOST_PARTS + 5, MOST_PARTS**2 + 1])
def test_many_tensors_are_put_together_a_few_at_a_time(op: str, axis: int, count: int) -> None:
    x = var("x", (2, 3))
    parts = [call("add", x, call("full_like", x, call("ones", shape=(), dtype="float32"))) for _ in range(count)]
    function = Function((x,), call(op, Tuple(tuple(parts)), axis=axis))
    with PassContext(opt_level=3):
        legal = Legalize()(function)
    joins = [n for n in post_order(legal.body) if is_op(n, "concatenate", "stack")]
    assert joins and all(len(n.args[0].fields) <= MOST_PARTS for n in joins)  # type: ignore[attr-defined]
    assert legal.body.type == function.body.type
    given = {"x": np.random.default_rng(0).random((2, 3), "float32")}
    np.testing.assert_array_equal(reference.run(legal, given), reference.run(function, given))


@pytest.mark.parametrize("join", [te.topi.concatenate, te.topi.stack])
@pytest.mark.parametrize("count", [MOST_PARTS + 1, 300])
def test_one_stage_puts_few_tensors_together(join: Callable[..., te.Tensor], count: int) -> None:
    """Of one expression, too, whose conditions are nested no deeper than so many."""
    rng = np.random.default_rng(count)
    given = [te.placeholder((2, 3), "float32", f"x{k}") for k in range(count)]
    out = join(given, 1)
    values = [rng.random((2, 3), "float32") for _ in given]
    want = np.concatenate(values, 1) if join is te.topi.concatenate else np.stack(values, 1)
    made = evaluate([*given, out], dict(zip(given, values, strict=True)))[out]
    np.testing.assert_array_equal(made, want)
    compiled = np.zeros(out.shape, "float32")
    codegen_c.build(lower(te.create_schedule(out.op), [*given, out]))(*values, compiled)
    np.testing.assert_array_equal(compiled, want)


@pytest.mark.parametrize("level", [0, 3])
def test_a_kernel_reads_few_of_many_tensors(level: int) -> None:
    inputs = [var(f"x{k}", (2, 3)) for k in range(5 * MOST_PARTS)]
    with PassContext(opt_level=level):
        fused = optimize(Function(tuple(inputs), call("concatenate", Tuple(tuple(inputs)), axis=0)), None, "c")
    groups = [n.function for n in post_order(fused.body) if hasattr(n, "function")]
    assert groups and max(len(g.params) for g in groups) <= MOST_PARTS
