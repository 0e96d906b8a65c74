"""Operators as compiled C code give what the reference executor gives, at least one of every kind."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import ansor
import relay_lite as relay
from relay_lite import reference
from relay_lite.ir.nodes import Expr
from tests.nonempty import nonempty
from tests.relay_lite.sound_calls import sound

NAMES = (
    "erf round nn.leaky_relu cast floor_mod logical_xor where",
    "one_hot argmin all nn.log_softmax nn.batch_norm",
    "nn.conv2d nn.conv2d_transpose nn.max_pool3d nn.batch_matmul",
    "image.resize2d nn.depth_to_space concatenate split take gather_nd strided_slice",
)
MORE = (
    "rsqrt sigmoid sign isnan clip divide mod power less",
    "nn.prelu arange prod variance nn.lrn nn.group_norm",
    "nn.conv1d nn.conv3d nn.contrib_conv2d_winograd_without_weight_transform nn.avg_pool2d nn.adaptive_avg_pool1d",
    "nn.upsampling nn.space_to_depth stack tile repeat gather reverse nn.pad broadcast_to",
)
"""Operators of the same kinds: for `make fuzz`."""


@pytest.mark.parametrize(
    "names",
    [*NAMES, *[pytest.param(names, marks=pytest.mark.slow) for names in MORE]],
    ids=lambda names: names.split()[0],
)
def test_compiled_operators(names: str) -> None:
    params: list[relay.Var] = []
    arrays: dict[str, np.ndarray] = {}
    rng = np.random.default_rng(0)

    def fresh(a: Expr) -> Expr:
        """An input of its own for every argument."""
        if isinstance(a, relay.Tuple):
            return relay.Tuple([fresh(x) for x in a.fields])
        v = relay.var(f"v{len(params)}", a.shape, a.dtype)
        params.append(v)
        floats = a.dtype == "float32"
        value = rng.uniform(0.2, 1.0, a.shape) if floats else rng.integers(0, 2, a.shape)
        arrays[v.name] = np.asarray(value).astype(a.dtype)
        return v

    outs: list[Expr] = []
    for name in names.split():
        made = sound(name)
        made = relay.Call(made.op, tuple(fresh(a) for a in made.args), made.attrs)
        outs += list(made) if isinstance(made.type, relay.TupleType) else [made]
    function = relay.Function(params, relay.Tuple(outs))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        lib = relay.build(relay.IRModule({"main": function}), target="c")
    module = relay.graph_executor.GraphModule(lib["default"](ansor.device("c")))
    module.run(**arrays)
    for k, (out, want) in nonempty(enumerate(zip(outs, reference.run(function, arrays, dtype="float64"), strict=True))):
        got = module.get_output(k).numpy()
        assert got.dtype == out.dtype
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5, err_msg=str(out))
