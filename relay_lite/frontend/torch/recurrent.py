"""Recurrent layers as loops: one product for the inputs of all steps, then one small product a step.

All weights of a layer and direction are (gates * hidden, ...); a layer that goes both ways reads, for each step, what
both directions of the one before gave.  Equations: the documentation of torch.nn.LSTM, GRU and RNN.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ...ir.loops import equal_parts, loop, loop_of_one
from ...ir.nodes import Expr
from ..onnx.emit import add, call, concatenate, mul, reshape, sub, transpose
from ..onnx.select import pick
from .node import Aten, Converter, Converters

Exprs: TypeAlias = Sequence[Expr]
Step: TypeAlias = Callable[[Expr, Exprs, "Weights"], list[Expr]]

MOST_PARTS, LEAST_STEPS = 8, 16


@dataclass(frozen=True)
class Weights:
    """Those of a layer and direction: for the input, for the hidden state, and their biases, or none."""

    inside: Expr
    back: Expr
    bias_inside: Expr | None = None
    bias_back: Expr | None = None

    @property
    def hidden(self) -> int:
        return self.back.shape[1]

    def of_input(self, x: Expr) -> Expr:
        """What the input adds to all gates."""
        return _biased(call("nn.dense", x, self.inside), self.bias_inside)

    def of_state(self, h: Expr) -> Expr:
        """What the hidden state adds to all gates."""
        return _biased(call("nn.dense", h, self.back), self.bias_back)

    def gate(self, x: Expr, k: int) -> Expr:
        """Gate `k` of all."""
        return pick(x, {1: range(k * self.hidden, (k + 1) * self.hidden)})


def _biased(x: Expr, bias: Expr | None) -> Expr:
    return x if bias is None else call("nn.bias_add", x, bias, axis=1)


def _sigmoid(x: Expr) -> Expr:
    return call("sigmoid", x)


def _tanh(x: Expr) -> Expr:
    return call("tanh", x)


def lstm_step(x: Expr, states: Exprs, weights: Weights) -> list[Expr]:
    """Gates in the order input, forget, cell, output."""
    h, c = states
    gates = add(x, weights.of_state(h))
    i, forget, g, o = (weights.gate(gates, k) for k in range(4))
    c = add(mul(_sigmoid(forget), c), mul(_sigmoid(i), _tanh(g)))
    return [mul(_sigmoid(o), _tanh(c)), c]


def gru_step(x: Expr, states: Exprs, weights: Weights) -> list[Expr]:
    """Gates in the order reset, update, new."""
    (h,) = states
    back = weights.of_state(h)
    reset, update = (_sigmoid(add(weights.gate(x, k), weights.gate(back, k))) for k in range(2))
    new = _tanh(add(weights.gate(x, 2), mul(reset, weights.gate(back, 2))))
    return [add(mul(sub(1, update), new), mul(update, h))]


def rnn_step(activation: Callable[[Expr], Expr]) -> Step:
    """One gate."""
    return lambda x, states, weights: [activation(add(x, weights.of_state(states[0])))]


def recurrent(step: Step, gates: int, states: int) -> Converter:
    """All hidden states of the last layer, and the last states of all layers.

    Several layers are computed in parts of the steps: a layer goes on while the next one has its first part.
    """

    def convert(node: Aten) -> list[Expr]:
        dropped, draws = float(node.number("dropout")), node.flag("train") and node.integer("num_layers") > 1
        node.require(dropped == 0 or not draws, "dropout draws random numbers", dropout=dropped)
        first, ways = node.flag("batch_first"), 2 if node.flag("bidirectional") else 1
        x = transpose(node.tensor("input"), (1, 0, 2)) if first else node.tensor("input")
        steps, batch, size = x.shape
        count = _parts(steps) if ways == 1 and node.integer("num_layers") > 1 else 1
        rows, last = equal_parts(reshape(x, (steps * batch, size)), count), [list[Expr]() for _ in range(states)]
        before = node.tensors("hx") if states > 1 else (node.tensor("hx"),)
        for layer in range(node.integer("num_layers")):
            found = []
            for way in range(ways):
                k = layer * ways + way
                weights = _weights(node, gates, k)
                ends: Exprs = [_of_layer(node, b, k, (batch, weights.hidden)) for b in before]
                given = []
                for part in rows:
                    ends, every = _layer(step, weights, part, ends, steps // count, way == 1)
                    given.append(every)
                found.append(given)
                for one, end in zip(last, ends, strict=True):
                    one.append(call("expand_dims", end, axis=0))
            rows = [concatenate(both, 1) for both in zip(*found, strict=True)] if ways > 1 else found[0]
        out = concatenate([reshape(part, (steps // count, batch, part.shape[1])) for part in rows], 0)
        return [transpose(out, (1, 0, 2)) if first else out, *[concatenate(one, 0) for one in last]]

    return convert


def _parts(steps: int) -> int:
    """How many parts of equal length there are, none of less than `LEAST_STEPS`."""
    return next(n for n in range(MOST_PARTS, 0, -1) if n == 1 or (steps % n == 0 and steps // n >= LEAST_STEPS))


def _layer(step: Step, weights: Weights, rows: Expr, start: Exprs, steps: int, backwards: bool) -> tuple[Exprs, Expr]:
    """The last states, and the hidden states of all steps as rows."""

    def one(slices: Exprs, states: Exprs) -> tuple[Exprs, Exprs]:
        new = step(slices[0], states, weights)
        return new, new

    looped = loop_of_one if len(start) > 1 else loop
    last, every = looped(one, [weights.of_input(rows)], start, steps, backwards)
    return last, every[0]


def _weights(node: Aten, gates: int, k: int) -> Weights:
    given = node.tensors("params")
    each = 4 if node.flag("has_biases") else 2
    count = node.integer("num_layers") * (2 if node.flag("bidirectional") else 1)
    law = f"{each} weights a layer and direction are supported, so no projection"
    node.require(len(given) == each * count and all(w is not None for w in given), law, weights=len(given))
    own = [w for w in given[each * k : each * (k + 1)] if w is not None]
    rows = gates * own[1].shape[1]
    law = f"weights must have {gates} gates of the hidden size"
    node.require(all(w.shape[0] == rows for w in own), law, shapes=[w.shape for w in own])
    return Weights(*own)


def _of_layer(node: Aten, states: Expr | None, k: int, shape: tuple[int, int]) -> Expr:
    node.require(states is not None and states.shape[1:] == shape, "states must be (layers, batch, hidden)")
    assert states is not None
    return reshape(pick(states, {0: range(k, k + 1)}) if states.shape[0] > 1 else states, shape)


RECURRENT: Converters = {
    "lstm": recurrent(lstm_step, 4, 2),
    "gru": recurrent(gru_step, 3, 1),
    "rnn_tanh": recurrent(rnn_step(_tanh), 1, 1),
    "rnn_relu": recurrent(rnn_step(lambda x: call("nn.relu", x)), 1, 1),
}
CONVERTERS: Converters = {
    **{f"aten.{name}.input": converter for name, converter in RECURRENT.items()},
    **{f"ansor.{name}": converter for name, converter in RECURRENT.items()},
}
"""Those of ATen, and those that `torch.compile` meets (`relay_lite/pytorch/recurrent.py`)."""
