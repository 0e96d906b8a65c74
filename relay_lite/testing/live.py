"""Parameters and inputs with which a network tells two inputs apart, for whoever compares values.

With the weights of `create_workload` the signal dies on its way: the probabilities of two pictures differ by less than
1e-5 of the largest one, so that almost any mistake would pass.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..ir.module import IRModule, main_function
from ..ir.nodes import Array, Call, Expr, Function, Var, children
from ..ir.reference import run
from ..ir.types import TensorType
from ..ir.visit import post_order

Arrays = Mapping[str, Array]
COARSE = 8
NOISE = 0.1


def fan_ins(graph: IRModule | Function) -> dict[str, int]:
    """How many products go into one sum, by the name of the weight of a convolution or a dense layer."""
    out = {}
    for node in post_order(main_function(graph).body):
        if isinstance(node, Call) and len(node.args) == 2 and isinstance(node.args[1], Var):
            axis = node.attrs["data_layout"].index("C") if "data_layout" in node.attrs else -1
            out[node.args[1].name] = int(np.prod(node.args[1].shape)) // node.shape[axis]
    return out


def live_params(
    graph: IRModule | Function, params: Arrays, rng: np.random.Generator, fixed: str = ""
) -> dict[str, Array]:
    """New values for `params`: weights that keep the size of a signal through a relu, vectors that differ by channel.

    Vectors with `fixed` in their name keep their values.
    """
    fans = fan_ins(graph)
    out: dict[str, Array] = {}
    for name, value in params.items():
        low, high = _bounds(name, fans)
        kept = name.rsplit("_", 1)[-1] != "weight" and fixed and fixed in name
        out[name] = value if kept else np.asarray(rng.uniform(low, high, value.shape), value.dtype)
    return out


def _bounds(name: str, fans: Mapping[str, int]) -> tuple[float, float]:
    """Between what the values of a parameter lie."""
    match name.rsplit("_", 1)[-1]:
        case "weight":
            bound = float(np.sqrt(6 / fans[name])) if name in fans else 1.0
            return -bound, bound
        case "gamma" | "var":
            return 0.5, 1.5
    return -0.1, 0.1


def live_inputs(graph: IRModule | Function, params: Arrays, rng: np.random.Generator) -> dict[str, Array]:
    """An array for every variable of the network that is not in `params`.

    Numbers of floats come in patches, up to `COARSE` along an axis, with a little noise: pictures of mere noise look
    alike to a network.  Integers are 0 or 1, which suits token numbers, segment numbers and masks.
    """
    inputs = [v for v in main_function(graph).params if v.name not in params]
    return {v.name: _drawn(v.var_type, rng) for v in inputs}


def _drawn(kind: TensorType, rng: np.random.Generator) -> Array:
    if not kind.dtype.startswith("float"):
        return rng.integers(0, 2, kind.shape).astype(kind.dtype)
    patches: Array = np.asarray(rng.uniform(-1, 1, [min(n, COARSE) for n in kind.shape]))
    for axis, n in enumerate(kind.shape):
        patches = patches.take(np.arange(n) * patches.shape[axis] // n, axis)
    drawn: Array = np.asarray(patches + rng.uniform(-NOISE, NOISE, kind.shape), kind.dtype)
    return drawn


def calm_scores(graph: IRModule | Function, params: Arrays, inputs: Arrays) -> dict[str, Array]:
    """`params` with the last weight scaled so that what goes into the softmax at the end has a deviation of one.

    Larger scores leave one class a probability of almost one, whatever the picture.  Without a softmax at the end
    nothing changes.
    """
    scores = before_softmax(graph)
    nodes = post_order(scores.body)
    weights = [n.args[1].name for n in nodes if isinstance(n, Call) and len(n.args) == 2 and isinstance(n.args[1], Var)]
    last = next((name for name in reversed(weights) if name.endswith("weight") and name in params), None)
    if scores.body is main_function(graph).body or last is None:
        return dict(params)
    deviation = float(np.std(np.asarray(run(scores, inputs, params))))
    return {**params, last: (params[last] / max(deviation, 1e-6)).astype(params[last].dtype)}


def before_softmax(graph: IRModule | Function) -> Function:
    """The network without the softmax at its end; it squeezes what differs."""
    main = main_function(graph)
    body: Expr = main.body
    ends = isinstance(body, Call) and body.op.name == "nn.softmax"
    return Function(main.params, children(body)[0], main.attrs) if ends else main
