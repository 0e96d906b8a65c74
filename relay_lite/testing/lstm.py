"""A long short-term memory, unrolled: the same input at every step, weights of its own at every step."""

from __future__ import annotations

from te_lite.errors import require

from ..ir.errors import GraphError
from ..ir.make import var
from ..ir.nodes import Expr, Function, TupleGetItem
from ..ir.visit import free_vars
from ..op.binary import add, multiply
from ..op.create import zeros
from ..op.elementwise import sigmoid, tanh
from ..op.join import split
from . import layers
from .init import workload_of


def get_net(iterations: int, num_hidden: int, batch_size: int = 1, dtype: str = "float32") -> Function:
    """The network as a function of `data` `[batch_size, num_hidden]` and its parameters; both states start at zero.

    The result is the hidden state after the last step, `[batch_size, num_hidden]`.  Step `i` (from 0) has the
    parameters `i2h_{i}` and `h2h_{i}`, `_weight` and `_bias`.
    """
    require(iterations >= 1, GraphError, "lstm", "at least one step", iterations=iterations)
    data = var("data", shape=(batch_size, num_hidden), dtype=dtype)
    hidden: Expr = zeros((batch_size, num_hidden), dtype)
    memory = hidden
    for step in range(iterations):
        hidden, memory = lstm_cell(data, hidden, memory, str(step))
    return Function(free_vars(hidden), hidden)


get_workload = workload_of(get_net)


def lstm_cell(data: Expr, hidden: Expr, memory: Expr, name: str) -> tuple[Expr, Expr]:
    """One step: the next hidden state and the next memory, each `[batch, units]` as `hidden` is.

    The gates are, in the order of the weights' rows: in, forget, the new content, out.
    """
    units = hidden.shape[1]
    from_data = layers.dense_add_bias(data, 4 * units, f"i2h_{name}")
    from_hidden = layers.dense_add_bias(hidden, 4 * units, f"h2h_{name}")
    parts = split(add(from_data, from_hidden), indices_or_sections=4, axis=1)
    gates = [TupleGetItem(parts, index) for index in range(4)]
    take, forget, out = (sigmoid(gates[index]) for index in (0, 1, 3))
    content = tanh(gates[2])
    memory = add(multiply(forget, memory), multiply(take, content))
    return multiply(out, tanh(memory)), memory
