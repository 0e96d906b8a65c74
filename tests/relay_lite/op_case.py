"""Check one operator: its type rule, its meaning in NumPy and its tensor expression say the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import te_lite as te
from relay_lite.ir.nodes import Call, Constant, Expr, Tuple, Var, tensor_type
from relay_lite.ir.types import TensorType, TupleType
from te_lite.expr.expr import FLOATS
from te_lite.meaning.reference import evaluate

TARGETS = ("c", "cuda")


def random_array(found: TensorType, rng: np.random.Generator, low: float = -1.0, high: float = 1.0) -> np.ndarray:
    """Floats in [low, high], integers in [-4, 4] (unsigned: [0, 8]), bools."""
    if found.dtype in FLOATS:
        return np.asarray(rng.uniform(low, high, found.shape)).astype(found.dtype)
    if found.dtype == "bool":
        return np.asarray(rng.integers(0, 2, found.shape)).astype("bool")
    return np.asarray(rng.integers(-4, 5, found.shape) + 4 * found.dtype.startswith("u")).astype(found.dtype)


def _values(node: Expr, given: Mapping[str, np.ndarray], rng: np.random.Generator, low: float, high: float) -> Any:
    match node:
        case Tuple(fields=fields):
            return [_values(f, given, rng, low, high) for f in fields]
        case Constant(value=value):
            return value
        case Var(name=name) if name in given:
            return given[name]
    return random_array(tensor_type(node), rng, low, high)


def _wide(value: Any) -> Any:
    if isinstance(value, list):
        return [_wide(v) for v in value]
    return value.astype("float64") if str(value.dtype) in FLOATS else value


def _as_list(value: Any) -> list[np.ndarray]:
    return list(value) if isinstance(value, tuple | list) else [value]


def tensor_values(
    call: Call, values: Sequence[Any], target: str, dtype: str | None = None
) -> tuple[list[te.Tensor], list[np.ndarray]]:
    """The tensors of a call's expression, and their arrays."""
    inputs: dict[te.Tensor, np.ndarray] = {}

    def placeholder(value: Any) -> Any:
        if isinstance(value, list):
            return [placeholder(v) for v in value]
        made = te.placeholder(value.shape, str(value.dtype), name=f"p{len(inputs)}")
        inputs[made] = value
        return made

    args = [placeholder(v) for v in values]
    assert call.op.compute is not None
    outs = call.op.compute(args, call.attrs, target)
    arrays = evaluate([*inputs, *outs], inputs, dtype)
    return outs, [arrays[t] for t in outs]


def check(
    call: Call,
    given: Mapping[str, np.ndarray] | None = None,
    low: float = -1.0,
    high: float = 1.0,
    seed: int = 0,
    rtol: float = 1e-11,
    own_rtol: float = 2e-5,
) -> list[np.ndarray]:
    """All three agree on random inputs (`given` by name); the results of the meaning are returned.

    In float64 they agree to `rtol` of the largest value, in the operator's own dtype to `own_rtol`.
    """
    rng = np.random.default_rng(seed)
    values = [_values(a, given or {}, rng, low, high) for a in call.args]
    types = call.type.fields if isinstance(call.type, TupleType) else (call.type,)
    own = _as_list(call.op.numpy(values, call.attrs))
    wide_attrs = {k: "float64" if k in ("dtype", "out_dtype") and v in FLOATS else v for k, v in call.attrs.items()}
    exact = _as_list(call.op.numpy([_wide(v) for v in values], wide_attrs))
    assert [TensorType(a.shape, str(a.dtype)) for a in own] == list(types), call
    for a, b in zip(own, exact, strict=True):
        _close(a, b, own_rtol)
    for target in TARGETS if call.op.compute is not None else ():
        outs, found = tensor_values(call, values, target)
        assert [TensorType(t.shape, t.dtype) for t in outs] == list(types), call
        for a, b in zip(found, exact, strict=True):
            _close(a, b, own_rtol)
        _, found = tensor_values(call, values, target, "float64")
        for a, b in zip(found, exact, strict=True):
            _close(a, b, rtol)
    return own


def _close(found: np.ndarray, want: np.ndarray, rtol: float) -> None:
    assert found.shape == want.shape
    if want.dtype.kind == "f":
        scale = np.abs(want[np.isfinite(want)]).max(initial=0.0)
        np.testing.assert_allclose(found, want, rtol=rtol, atol=rtol * max(1.0, float(scale)))
    else:
        np.testing.assert_array_equal(found, want)
