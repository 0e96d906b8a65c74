"""Recurrent layers as loops: one product for the inputs of all steps, then one small product a step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np

from ...ir.loops import loop
from ...ir.nodes import Expr
from .activation import scaled_elu, soft_plus, soft_sign
from .emit import add, binary, call, cast, concatenate, const, mul, reshape, sub, transpose
from .node import Converters, Node
from .select import pick

State: TypeAlias = tuple[Expr, ...]
Act: TypeAlias = Callable[[Expr], Expr]
Step: TypeAlias = Callable[["Layer", Expr, State], State]

ACTIVATIONS: dict[str, tuple[Callable[..., Expr], dict[str, float | None]]] = {
    "relu": (lambda x: call("nn.relu", x), {}),
    "tanh": (lambda x: call("tanh", x), {}),
    "sigmoid": (lambda x: call("sigmoid", x), {}),
    "softsign": (soft_sign, {}),
    "softplus": (soft_plus, {}),
    "hardsigmoid": (
        lambda x, alpha, beta: call("clip", add(mul(x, alpha), beta), a_min=0.0, a_max=1.0),
        {"alpha": 0.2, "beta": 0.5},
    ),
    "leakyrelu": (lambda x, alpha: call("nn.leaky_relu", x, alpha=alpha), {"alpha": 0.01}),
    "elu": (scaled_elu, {"alpha": 1.0}),
    "thresholdedrelu": (
        lambda x, alpha: call("where", binary("greater", x, alpha), x, const(0, x.dtype)),
        {"alpha": 1.0},
    ),
    "scaledtanh": (lambda x, alpha, beta: mul(call("tanh", mul(x, beta)), alpha), {"alpha": None, "beta": None}),
    "affine": (lambda x, alpha, beta: add(mul(x, alpha), beta), {"alpha": 1.0, "beta": 0.0}),
}
"""By name: a function, and what its alpha and beta are unless the node says so; None where it must."""
DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}


@dataclass(frozen=True)
class Layer:
    """One direction: recurrent weight (gates * hidden, hidden), its bias, peepholes, activations, and the clip."""

    node: Node
    hidden: int
    recurrent: Expr
    bias: Expr | None
    peephole: Expr | None
    acts: Sequence[Act]
    clip: float
    direction: int

    def product(self, index: int, x: Expr, weight: Expr) -> Expr:
        """Rows of `x` times the weight of this direction that is input `index` of the node, 1 or 2."""
        return call("nn.dense", x, weight)

    def gate(self, x: Expr, index: int, count: int = 1) -> Expr:
        """Gates `index` and following of (batch, gates * hidden)."""
        return pick(x, {1: range(index * self.hidden, (index + count) * self.hidden)})

    def clipped(self, x: Expr) -> Expr:
        """`x` within the clip."""
        return call("clip", x, a_min=-self.clip, a_max=self.clip) if self.clip else x

    def from_state(self, h: Expr) -> Expr:
        """What the hidden state adds to all gates."""
        out = self.product(2, h, self.recurrent)
        return out if self.bias is None else call("nn.bias_add", out, self.bias, axis=1)


def lstm_step(layer: Layer, x: Expr, state: State) -> State:
    """Gates in the order input, output, forget, cell."""
    h, c = state
    gates = add(x, layer.from_state(h))
    f, g, k = layer.acts
    i, o, forget, cell = (layer.gate(gates, j) for j in range(4))
    if layer.peephole is not None:
        weights = [pick(layer.peephole, {0: range(j * layer.hidden, (j + 1) * layer.hidden)}) for j in range(3)]
        i, forget = add(i, mul(weights[0], c)), add(forget, mul(weights[2], c))
    i = f(layer.clipped(i))
    keep = sub(1, i) if layer.node.integer("input_forget", 0) else f(layer.clipped(forget))
    c = add(mul(keep, c), mul(i, g(layer.clipped(cell))))
    if layer.peephole is not None:
        o = add(o, mul(weights[1], c))
    return mul(f(layer.clipped(o)), k(c)), c


def gru_step(layer: Layer, x: Expr, state: State) -> State:
    """Gates in the order update, reset, hidden."""
    (h,) = state
    f, g = layer.acts
    n = layer.hidden
    if layer.node.integer("linear_before_reset", 0):
        back = layer.from_state(h)
        z, r = (f(layer.clipped(add(layer.gate(x, j), layer.gate(back, j)))) for j in range(2))
        inside = mul(r, layer.gate(back, 2))
    else:
        parts = [pick(layer.recurrent, {0: rows}) for rows in (range(2 * n), range(2 * n, 3 * n))]
        both = _biased(layer, call("nn.dense", h, parts[0]), range(2 * n))
        z, r = (f(layer.clipped(add(layer.gate(x, j), layer.gate(both, j)))) for j in range(2))
        inside = _biased(layer, call("nn.dense", mul(r, h), parts[1]), range(2 * n, 3 * n))
    new = g(layer.clipped(add(layer.gate(x, 2), inside)))
    return (add(mul(sub(1, z), new), mul(z, h)),)


def _biased(layer: Layer, x: Expr, part: range) -> Expr:
    return x if layer.bias is None else call("nn.bias_add", x, pick(layer.bias, {0: part}), axis=1)


def rnn_step(layer: Layer, x: Expr, state: State) -> State:
    """One gate."""
    return (layer.acts[0](layer.clipped(add(x, layer.from_state(state[0])))),)


@dataclass(frozen=True)
class Kind:
    """A recurrent operator: gates, states, the activations by default, and a step."""

    gates: int
    states: int
    acts: tuple[str, ...]
    step: Step
    layer: Callable[..., Layer] = Layer


def recurrent(kind: Kind) -> Callable[[Node], list[Expr]]:
    """X (steps, batch, size), W, R, B, lengths and initial states to all hidden states and the last states."""

    def convert(node: Node) -> list[Expr]:
        layout, direction = node.integer("layout", 0), node.text("direction", "forward")
        node.require(direction in DIRECTIONS, f"direction is one of {', '.join(DIRECTIONS)}", direction=direction)
        node.require(layout in (0, 1), "layout must be 0 or 1", layout=layout)
        node.require(
            len(node.input(0).shape) == 3, "an input of steps, batch and size is needed", X=node.input(0).shape
        )
        x = transpose(node.input(0), (1, 0, 2)) if layout else node.input(0)
        runs = [_run(node, kind, x, d, back) for d, back in enumerate(DIRECTIONS[direction])]
        every = concatenate([call("expand_dims", r[0], axis=1) for r in runs], 1)
        last = [concatenate([call("expand_dims", r[1][s], axis=0) for r in runs], 0) for s in range(kind.states)]
        if layout:
            every, last = transpose(every, (2, 0, 1, 3)), [transpose(v, (1, 0, 2)) for v in last]
        return [every, *last]

    return convert


def _run(node: Node, kind: Kind, x: Expr, d: int, backwards: bool) -> tuple[Expr, State]:
    """All hidden states (steps, batch, hidden) and the last states of direction `d`."""
    steps, batch, size = x.shape
    layer, weight, bias = _layer(node, kind, d)
    node.require(weight.shape[1] == size, "W must have the size of the input", input=x.shape, W=weight.shape)
    state = tuple(_initial(node, 5 + s, d, batch, layer.hidden, x.dtype) for s in range(kind.states))
    if 0 in (steps, batch):
        node.asked.update((4, "input_forget", "linear_before_reset"))  # what only steps ask for
        return const(np.zeros((steps, batch, layer.hidden)), x.dtype), state
    inside = layer.product(1, reshape(x, (steps * batch, size)), weight)
    if bias is not None:
        inside = call("nn.bias_add", inside, bias, axis=1)
    ends = _ends(node, steps)
    times = [] if ends is None else [const(np.arange(steps), "int32")]

    def step(slices: Sequence[Expr], old: Sequence[Expr]) -> tuple[Sequence[Expr], Sequence[Expr]]:
        new = kind.step(layer, slices[0], tuple(old))
        if ends is None:
            return new, new[:1]
        goes_on = reshape(binary("greater", ends, slices[1]), (batch, 1))
        kept = [call("where", goes_on, n, o) for n, o in zip(new, old, strict=True)]
        return kept, [call("where", goes_on, new[0], const(0, new[0].dtype))]

    last, (every,) = loop(step, [inside, *times], state, steps, backwards)
    return reshape(every, (steps, batch, layer.hidden)), tuple(last)


def _ends(node: Node, steps: int) -> Expr | None:
    """Where sequences end, None where none ends before the last step: from there on 0 is shown, and states stay."""
    lengths, known = node.optional(4), node.known(4)
    if lengths is None or (known is not None and bool(np.all(known >= steps))):
        return None
    return cast(lengths, "int32")


def _layer(node: Node, kind: Kind, d: int) -> tuple[Layer, Expr, Expr | None]:
    """The layer of direction `d`, its input weight and the bias of that."""
    weight, back = (_of_direction(node.input(i), d) for i in (1, 2))
    hidden = node.integer("hidden_size", back.shape[1])
    rows = kind.gates * hidden
    law = f"W and R must have {kind.gates} gates of hidden_size"
    node.require(weight.shape[0] == rows and back.shape == (rows, hidden), law, W=weight.shape, R=back.shape)
    given = node.optional(3)
    bias = None if given is None else _of_direction(given, d)
    node.require(bias is None or bias.shape == (2 * rows,), f"B must have {2 * rows} values a direction")
    parts = (None, None) if bias is None else (pick(bias, {0: range(rows)}), pick(bias, {0: range(rows, 2 * rows)}))
    hole = node.optional(7) if kind.states == 2 else None
    peephole = None if hole is None else _of_direction(hole, d)
    clip = node.number("clip", 0.0)
    acts = _activations(node, kind, d)
    return kind.layer(node, hidden, back, parts[1], peephole, acts, clip, d), weight, parts[0]


def _of_direction(x: Expr, d: int) -> Expr:
    return reshape(pick(x, {0: range(d, d + 1)}) if x.shape[0] > 1 else x, x.shape[1:])


def _initial(node: Node, index: int, d: int, batch: int, hidden: int, dtype: str) -> Expr:
    given = node.optional(index)
    if given is None:
        return const(np.zeros((batch, hidden)), dtype)
    given = transpose(given, (1, 0, 2)) if node.integer("layout", 0) else given
    law = "an initial state must be (directions, batch, hidden)"
    node.require(given.shape[1:] == (batch, hidden) and d < given.shape[0], law, shape=given.shape)
    return _of_direction(given, d)


def _activations(node: Node, kind: Kind, d: int) -> list[Act]:
    """The activations of direction `d`; those of all directions that have an alpha (or beta) take them in turn."""
    count = len(kind.acts)
    every = node.texts("activations", kind.acts * (d + 1))
    known = len(every) >= count * (d + 1) and all(n.lower() in ACTIVATIONS for n in every)
    node.require(known, f"activations are {count} a direction of {', '.join(ACTIVATIONS)}", activations=every)
    chosen = [ACTIVATIONS[n.lower()] for n in every]
    given = {name: list(node.numbers(f"activation_{name}", ())) for name in ("alpha", "beta")}
    for name, values in given.items():
        takers = sum(name in defaults for _, defaults in chosen)
        node.require(len(values) <= takers, f"{takers} activations take an {name}", activations=every, got=values)
    acts: list[Act] = []
    for function, defaults in chosen:
        numbers = {n: given[n].pop(0) if given[n] else v for n, v in defaults.items()}
        law = "an activation without numbers of its own needs activation_alpha and activation_beta"
        node.require(None not in numbers.values(), law, activations=every)
        acts.append(partial(function, **{n: float(np.float32(v)) for n, v in numbers.items() if v is not None}))
    return acts[d * count : (d + 1) * count]


CONVERTERS: Converters = {
    "LSTM": {7: recurrent(Kind(4, 2, ("Sigmoid", "Tanh", "Tanh"), lstm_step))},
    "GRU": {7: recurrent(Kind(3, 1, ("Sigmoid", "Tanh"), gru_step))},
    "RNN": {7: recurrent(Kind(1, 1, ("Tanh",), rnn_step))},
}
