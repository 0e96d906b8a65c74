"""Operators on tensors with open extents: their tensor expressions, as programs for all sizes, against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import numpy as np
import pytest

import relay_lite as relay
import te_lite as te
from ansor_ext.open_sizes.closed import closed
from relay_lite import GraphError, nn
from relay_lite.ir.at_sizes import at_sizes
from relay_lite.ir.extents import value_of
from relay_lite.ir.make import call
from relay_lite.ir.nodes import Call, Constant, Function, Tuple
from relay_lite.ir.op_registry import OPS
from relay_lite.ir.reference import run as reference
from relay_lite.ir.visit import free_vars, sizes_in
from relay_lite.op.along_sizes import OPEN
from relay_lite.op.lower_group import lower_group
from te_lite.meaning.interp import run
from tests.nonempty import nonempty
from tests.relay_lite.op_case import random_array
from tests.relay_lite.sound_calls import sound

N, M = te.size_var("n", 1, 6), te.size_var("m", 1, 5)
POINTS = ((1, 1), (6, 5), (2, 3), (5, 1))
IN_NETWORKS = {"reshape", "nn.group_norm"}
"""No kernels along open extents, but views, and what is made of views."""
NUMBERS = count()


def x(*shape: Any, dtype: str = "float32") -> relay.Var:
    """An argument, with a name of its own."""
    return relay.var(f"x{next(NUMBERS)}", shape=shape, dtype=dtype)


MADE: dict[str, Callable[[], Any]] = {
    "add": lambda: relay.add(x(N, 2, M), x(2, 1)),
    "arange": lambda: relay.add(x(N), relay.arange(N)),
    "broadcast_to": lambda: relay.add(relay.broadcast_to(x(N, 1, 3), (N, M, 3)), x(M, 3)),
    "cast": lambda: relay.cast(x(N, 3), "int32"),
    "clip": lambda: relay.clip(x(N, M), -0.5, 0.5),
    "concatenate": lambda: relay.concatenate([x(N, 2, M), x(N, 3, M)], 1),
    "expand_dims": lambda: relay.expand_dims(x(N, M), 1),
    "full": lambda: relay.add(x(N, 2), relay.full(3.0, (N, 2), "float32")),
    "nn.adaptive_avg_pool2d": lambda: nn.adaptive_avg_pool2d(x(N, 2, 4, 4), (2, 2)),
    "nn.avg_pool2d": lambda: nn.avg_pool2d(x(N, 2, 5, 5), (3, 3), (2, 2), padding=(1, 1)),
    "nn.batch_flatten": lambda: nn.batch_flatten(x(N, 2, 3)),
    "nn.batch_matmul": lambda: nn.batch_matmul(x(N * 2, M, 3), x(N * 2, M, 3)),
    "nn.batch_norm": lambda: nn.batch_norm(x(N, 2, 3), *[relay.abs(x(2)) for _ in range(4)])[0],
    "nn.bias_add": lambda: nn.bias_add(x(N, 2, M), x(2), 1),
    "nn.conv2d": lambda: nn.conv2d(x(N, 2, 5, 5), x(3, 2, 3, 3), padding=(1, 1)),
    "nn.dense": lambda: nn.dense(x(N * M, 4), x(3, 4)),
    "nn.dropout": lambda: nn.dropout(x(N, 3)),
    "nn.global_avg_pool2d": lambda: nn.global_avg_pool2d(x(N, 2, 3, 3)),
    "nn.global_max_pool2d": lambda: nn.global_max_pool2d(x(N, 2, 3, 3)),
    "nn.layer_norm": lambda: nn.layer_norm(x(N, M, 4), x(4), x(4)),
    "nn.leaky_relu": lambda: nn.leaky_relu(x(N, M), 0.1),
    "nn.log_softmax": lambda: nn.log_softmax(x(N, M)),
    "nn.matmul": lambda: nn.matmul(x(N, M), x(M, 3)),
    "nn.pad": lambda: nn.pad(x(N, 2, M), ((0, 0), (1, 2), (0, 0))),
    "nn.max_pool2d": lambda: nn.max_pool2d(x(N, 2, 5, 5), (2, 2), (2, 2)),
    "nn.softmax": lambda: nn.softmax(x(N, 2, M)),
    "mean": lambda: relay.mean(x(N, M, 3), (0, 1)),
    "sum": lambda: relay.sum(x(N, M, 3), 1),
    "split": lambda: relay.split(x(N, 6, M), 3, 1)[1],
    "squeeze": lambda: relay.squeeze(x(N, 1, M), 1),
    "strided_slice": lambda: relay.add(
        relay.strided_slice(x(N, 6, 7), (0, 1, 0), (1 << 40, 5, M), (1, 2, 1)), x(N, 2, M)
    ),
    "take": lambda: relay.take(x(7, M), x(N, 2, dtype="int32"), 0),
    "transpose": lambda: relay.transpose(x(N, 2, M), (2, 0, 1)),
    "variance": lambda: relay.variance(x(N, M), 1, with_mean=x(N, 1)),
    "where": lambda: relay.where(x(N, 1, dtype="bool"), x(N, M), x(M)),
}


def opened(name: str) -> Any:
    """The sound call of an operator with n in place of the first extent, in all arguments of the first one's rank."""
    sound_call = sound(name)
    first, *_ = [f for a in sound_call.args for f in (a.fields if isinstance(a, Tuple) else (a,))]

    def fresh(e: Any) -> Any:
        if isinstance(e, Tuple):
            return Tuple([fresh(f) for f in e.fields])
        if isinstance(e, Constant):
            return e
        alike = len(e.shape) == len(first.shape) and e.shape[0] == first.shape[0]
        return x(*((N, *e.shape[1:]) if alike else e.shape), dtype=e.dtype)

    return Call(sound_call.op, tuple(map(fresh, sound_call.args)), sound_call.attrs)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted(OPEN - IN_NETWORKS))
def test_an_operator_is_right_at_all_sizes(name: str) -> None:
    body = MADE.get(name, lambda: opened(name))()
    function = Function(free_vars(body), body)
    group = lower_group(function, "c")
    func = te.lower(group.dag.init_state, list(dict.fromkeys(group.tensors)))
    rng = np.random.default_rng(0)
    for point in nonempty(POINTS):
        sizes = {v: n for v, n in zip((N, M), point, strict=True) if v in sizes_in(function)}
        fixed = at_sizes(function, sizes)
        arrays = [np.abs(random_array(v.var_type, rng, 0.1, 1.0)).astype(v.dtype) for v in fixed.params]
        found = reference(fixed, [a % 2 if a.dtype == np.int32 else a for a in arrays])
        wanted = found if isinstance(found, tuple) else (found,)
        given = [np.array(a % 2 if a.dtype == np.int32 else a, order="C") for a in arrays]
        results = [np.empty(want.shape, want.dtype) for want in wanted]
        values = {v: value_of(v, sizes) for v in func.sizes}
        run(closed(func, values), [*[given[k] for k in group.inputs], *results])
        for out, want in nonempty(zip(results, wanted, strict=True)):
            np.testing.assert_allclose(out, want, rtol=1e-4, atol=1e-5)


def test_other_operators_are_refused_by_name() -> None:
    """Those of packed weights come when a network is tuned."""
    known = {name for name in set(OPS) - OPEN if OPS[name].compute is not None}
    assert {name for name in known if not name.endswith("_packed")} == {
        "cumprod", "forest", "nn.contrib_conv2d_winograd_weight_transform",
        "nn.contrib_conv2d_winograd_without_weight_transform", "ones", "packed_weight", "zeros",
    }  # fmt: skip
    with pytest.raises(GraphError, match=r"^cumprod: it takes no open extents, got shapes=\[\(n, m\)\]$"):
        call("cumprod", x(N, M), **OPS["cumprod"].defaults)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (lambda: nn.conv2d(x(1, 2, N, 5), x(3, 2, 3, 3)), r"nn.conv2d: .*no open extent.*\(1, 2, n, 5\)"),
        (lambda: relay.add(x(N, 3), x(M, 3)), "add: the shapes do not fit together"),
        (lambda: relay.reshape(x(N, 3), (5, -1)), "reshape: the divisor must divide an open extent for all sizes"),
        (lambda: relay.reshape(x(N, 3), (N, 4)), "reshape: the new shape must hold as many elements for all sizes"),
        (lambda: relay.strided_slice(x(N, 3), (0,), (4,)), "strided_slice: along an open extent a slice begins"),
        (lambda: relay.strided_slice(x(3, 3), (0,), (N,)), "strided_slice: along an open extent a slice begins"),
        (lambda: relay.split(x(N, 3), 2, 0), "split"),
        (lambda: relay.squeeze(x(N, 1, 3)), "squeeze: the axis must be named beside an open extent that may be 1"),
        (lambda: nn.dense(x(N, 3), x(2, M)), "nn.dense: the inner extents must agree"),
    ],
)
def test_what_depends_on_the_size_is_refused(wrong: Callable[[], Any], sentence: str) -> None:
    with pytest.raises(GraphError, match=sentence):
        wrong()
