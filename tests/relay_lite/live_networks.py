"""Parameters with which a network tells two pictures apart, for tests that compare values.

With the weights of `relay.testing` the signal dies on its way: the probabilities of two pictures differ by less than
1e-5 of the largest one, so that almost any mistake would pass.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from relay_lite.ir import Call, Function, IRModule, Var, children, main_function, post_order

Arrays: TypeAlias = dict[str, np.ndarray]


def fan_ins(graph: IRModule | Function) -> dict[str, int]:
    """How many products go into one sum, by the name of the weight of a convolution or a dense layer."""
    out = {}
    for node in post_order(main_function(graph).body):
        if isinstance(node, Call) and len(node.args) == 2 and isinstance(node.args[1], Var):
            axis = node.attrs["data_layout"].index("C") if "data_layout" in node.attrs else -1
            out[node.args[1].name] = int(np.prod(node.args[1].shape)) // node.shape[axis]
    return out


def live_params(graph: IRModule | Function, params: Arrays, rng: np.random.Generator, fixed: str = "") -> Arrays:
    """New values for `params`: weights that keep the size of a signal through a relu, vectors that differ by channel.

    Vectors with `fixed` in their name keep their values.
    """
    fans = fan_ins(graph)
    out = {}
    for name, value in params.items():
        kind = name.rsplit("_", 1)[1]
        if kind == "weight":
            bound = np.sqrt(6 / fans[name]) if name in fans else 1.0
            low, high = -bound, bound
        else:
            low, high = (0.5, 1.5) if kind in ("gamma", "var") else (-0.1, 0.1)
        kept = kind != "weight" and fixed and fixed in name
        out[name] = value if kept else rng.uniform(low, high, value.shape).astype(value.dtype)
    return out


def before_softmax(graph: IRModule | Function) -> Function:
    """The network without the softmax at its end; it squeezes what differs."""
    main = main_function(graph)
    ends = isinstance(main.body, Call) and main.body.op.name == "nn.softmax"
    return Function(main.params, children(main.body)[0], main.attrs) if ends else main
