"""What ONNX's recurrent operators mean, from its pages: RNN, GRU and LSTM with their usual functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from .blocks import Value, add, chosen_floats, f, joined, moved, mul, number, product, spread, sub
from .bounded import Array
from .onnx_elements import Args, Attrs

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
States = list[Value]


def recurrent(op: str) -> Callable[[Args, Attrs], list[Value]]:
    """The meaning of an operator: all steps, the last hidden state, and of an LSTM the last cell."""

    def meaning(args: Args, attrs: Attrs) -> list[Value]:
        x, w, r, b, lengths, *given = [*args, *[None] * 7][:7]
        steps, batch, _ = x.v.shape
        counts = np.full(batch, steps) if lengths is None else lengths.v
        directions = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}
        ways = directions[attrs.get("direction", "forward")]
        zeros = spread(number(0, x), (batch, r.v.shape[-1]))
        found = []
        for k, backward in enumerate(ways):
            states = [zeros if s is None else moved(s, lambda y, k=k: y[k]) for s in given[: 2 if op == "LSTM" else 1]]
            bias = None if b is None else moved(b, lambda y, k=k: y[k])
            weights = [moved(m, lambda y, k=k: y[k]) for m in (w, r)]
            found.append(_one_way(op, x, weights, bias, states, counts, backward, attrs))
        outputs = [joined([moved(way[0], lambda y: y[:, None]) for way in found], lambda ys: np.concatenate(ys, 1))]
        outputs += [joined([way[1][i] for way in found], np.stack) for i in range(len(found[0][1]))]
        return outputs[: attrs.get("results", 1)]

    return meaning


def _one_way(
    op: str, x: Value, weights: Sequence[Value], bias: Value | None, states: States, counts: Array, backward: bool,
    attrs: Attrs,
) -> tuple[Value, States]:  # fmt: skip
    """All steps of one direction, zeros behind the end of a sequence; backward, each is read from its end."""
    steps = x.v.shape[0]
    x = moved(x, lambda y: _turned(y, counts)) if backward else x
    made = []
    for t in range(steps):
        lives = (t < counts)[:, None]
        new = STEPS[op](moved(x, lambda y, t=t: y[t]), weights, bias, states, attrs)
        made.append(chosen_floats(lives, new[0], number(0, x)))
        states = [chosen_floats(np.broadcast_to(lives, s.v.shape), n, s) for n, s in zip(new, states, strict=True)]
    whole = joined(made, np.stack)
    return (moved(whole, lambda y: _turned(y, counts)) if backward else whole), states


def _turned(y: Array, counts: Array) -> Array:
    """(steps, batch, ...) with the first steps of every sequence in the opposite order."""
    out = np.array(y)
    for k, n in enumerate(counts):
        out[:n, k] = y[:n, k][::-1]
    return out


def _gates(x: Value, w: Value, bias: Value | None, count: int, second: bool) -> States:
    """The product with the transposed weights and its half of the bias, gate by gate."""
    whole = product(x, moved(w, np.transpose))
    if bias is not None:
        n = w.v.shape[0]
        whole = add(whole, moved(bias, lambda y: y[n:] if second else y[:n]))
    return [moved(whole, lambda y, k=k: np.split(y, count, 1)[k]) for k in range(count)]


def _rnn(x: Value, weights: Sequence[Value], bias: Value | None, states: States, attrs: Attrs) -> States:
    (a,), (b,) = (_gates(y, m, bias, 1, s) for y, m, s in ((x, weights[0], False), (states[0], weights[1], True)))
    return [f("tanh", add(a, b))]


def _gru(x: Value, weights: Sequence[Value], bias: Value | None, states: States, attrs: Attrs) -> States:
    h = states[0]
    (az, ar, ah), (bz, br, bh) = _gates(x, weights[0], bias, 3, False), _gates(h, weights[1], bias, 3, True)
    z, r = f("sigmoid", add(az, bz)), f("sigmoid", add(ar, br))
    if attrs.get("linear_before_reset"):
        new = f("tanh", add(ah, mul(r, bh)))
    else:
        new = f("tanh", add(ah, _gates(mul(r, h), weights[1], bias, 3, True)[2]))
    return [add(mul(sub(number(1, z), z), new), mul(z, h))]


def _lstm(x: Value, weights: Sequence[Value], bias: Value | None, states: States, attrs: Attrs) -> States:
    h, cell = states
    sums = map(add, _gates(x, weights[0], bias, 4, False), _gates(h, weights[1], bias, 4, True))
    i, o, forget, new = sums
    cell = add(mul(f("sigmoid", forget), cell), mul(f("sigmoid", i), f("tanh", new)))
    return [mul(f("sigmoid", o), f("tanh", cell)), cell]


STEPS = {"RNN": _rnn, "GRU": _gru, "LSTM": _lstm}
RECURRENT = {op: recurrent(op) for op in STEPS}
"""By the name of the operator."""
