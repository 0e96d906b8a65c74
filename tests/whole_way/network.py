"""A random network as plain data, and how one is drawn: layers of convolutional networks and of transformers.

    ("input", shape)   ("const", shape, low, high)                    floats, from the seed of the network
    (operator, (numbers of nodes ...), attributes)                     a node; relay's names

A node's number is its place.  `split` is followed by `item` nodes, which pick one of its parts.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

Node = tuple[Any, ...]
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Network:
    """Nodes, the numbers of the outputs, and the seed of inputs and weights."""

    nodes: tuple[Node, ...]
    outputs: tuple[int, ...]
    seed: int


def to_json(network: Network) -> str:
    """One line."""
    return json.dumps(asdict(network))


def from_json(text: str) -> Network:
    """The network in `to_json`'s text."""
    data = json.loads(text)
    return Network(_tuples(data["nodes"]), _tuples(data["outputs"]), data["seed"])


def _tuples(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _tuples(v) for k, v in value.items()}
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def given(node: Node) -> bool:
    """Whether a node is an input or a constant."""
    return node[0] in ("input", "const")


def needed(network: Network) -> Network:
    """`network` without nodes that no output needs."""
    keep, todo = set(), list(network.outputs)
    while todo:
        k = todo.pop()
        if k not in keep:
            keep.add(k)
            todo += [] if given(network.nodes[k]) else network.nodes[k][1]
    new = {old: n for n, old in enumerate(sorted(keep))}
    nodes = []
    for k in sorted(keep):
        node = network.nodes[k]
        nodes.append(node if given(node) else (node[0], tuple([new[i] for i in node[1]]), node[2]))
    return Network(tuple(nodes), tuple([new[o] for o in network.outputs]), network.seed)


def arrays(network: Network) -> dict[int, np.ndarray]:
    """Inputs and constants, float32, by the number of their node; of multiples of 1/16."""
    out = {}
    for k, node in enumerate(network.nodes):
        if given(node):
            rng = np.random.default_rng([network.seed, k])
            low, high = node[2:] if node[0] == "const" else (-2.0, 2.0)
            out[k] = (np.rint(rng.uniform(low, high, node[1]) * 16) / 16).astype("float32")
    return out


def draw(seed: int) -> Network:
    """The network of a seed: three to eighteen layers."""
    return _Drawing(np.random.default_rng([seed, 77])).network(seed)


def _alike(a: Shape, b: Shape, axis: int) -> bool:
    """Two shapes differ along one axis at most."""
    return len(a) == len(b) and a[:axis] == b[:axis] and a[axis + 1 :] == b[axis + 1 :]


class _Drawing:
    """Nodes with the shapes of their values, which the drawing keeps to itself."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.nodes: list[Node] = []
        self.shapes: list[Shape] = []
        self.layout = "NCHW" if rng.random() < 0.5 else "NHWC"

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def pick(self, items: Any) -> Any:
        return items[int(self.rng.integers(len(items)))]

    def put(self, node: Node, shape: Shape) -> int:
        self.nodes.append(node)
        self.shapes.append(shape)
        return len(self.nodes) - 1

    def add(self, op: str, *inputs: int, shape: Shape, **attrs: Any) -> int:
        return self.put((op, inputs, attrs), shape)

    def const(self, *shape: int, low: float = -1.0, high: float = 1.0) -> int:
        return self.put(("const", shape, low, high), shape)

    def network(self, seed: int) -> Network:
        h, w, c = self.pick([4, 5, 7, 8, 11]), self.pick([3, 5, 6, 9]), self.pick([1, 2, 3, 4, 8])
        shape = (self.pick([1, 1, 2]), *((c, h, w) if self.layout == "NCHW" else (h, w, c)))
        if self.chance(0.3):
            shape = (self.pick([1, 2, 3]), self.pick([3, 5, 8]), self.pick([4, 6, 8, 12]))[self.pick([0, 1]) :]
        values = [self.put(("input", shape), shape)]
        for _ in range(int(self.rng.integers(3, 25))):
            x = values[-1] if self.chance(0.85) else self.pick(values)
            values.append(self.layer(x, values))
        outputs = [values[-1]] + ([self.pick(values)] if self.chance(0.2) else [])
        outputs = [o for o in dict.fromkeys(outputs) if not given(self.nodes[o])] or [values[-1]]
        return needed(Network(tuple(self.nodes), tuple(outputs), seed))

    def layer(self, x: int, values: list[int]) -> int:
        shape = self.shapes[x]
        layers = [self.unary, self.unary, self.activation, self.binary, self.binary, self.scaled, self.move, self.move,
                  self.reduced, self.row]  # fmt: skip
        if len(shape) == 4:
            layers += [self.conv, self.conv, self.conv, self.pool, self.norm, self.norm, self.bias, self.tail]
        if len(shape) == 2:
            layers += [self.dense, self.dense, self.bias]
        if len(shape) == 3:
            layers += [self.products, self.row]
        found = self.pick(layers)(x, values)
        return x if found is None else int(found)

    # ------------------------------------------------------------------------------------- element by element

    def unary(self, x: int, values: list[int]) -> int:
        op = self.pick(["nn.relu", "nn.relu", "tanh", "sigmoid", "abs", "negative", "erf", "floor", "exp", "sqrt"])
        if op == "exp":
            x = self.add("clip", x, shape=self.shapes[x], a_min=-3.0, a_max=2.0)
        if op == "sqrt":
            x = self.add("abs", x, shape=self.shapes[x])
        return self.add(op, x, shape=self.shapes[x])

    def activation(self, x: int, values: list[int]) -> int:
        if self.chance(0.5):
            return self.add("nn.leaky_relu", x, shape=self.shapes[x], alpha=0.25)
        return self.add("clip", x, shape=self.shapes[x], a_min=self.pick([0.0, -0.5]), a_max=self.pick([0.75, 6.0]))

    def binary(self, x: int, values: list[int]) -> int:
        """Of two values of one shape, or one that broadcasts."""
        alike = [v for v in values if self.shapes[v] == self.shapes[x]]
        y = self.pick(alike)
        return self.two(x, y, self.shapes[x])

    def two(self, x: int, y: int, shape: Shape) -> int:
        op = self.pick(["add", "add", "subtract", "multiply", "maximum", "minimum", "divide", "where"])
        if op == "divide":
            size = self.add("abs", y, shape=self.shapes[y])
            y = self.add("add", size, self.const(1, low=0.5, high=1.0), shape=self.shapes[y])
        if op == "where":
            condition = self.add(self.pick(["less", "greater_equal"]), x, y, shape=shape)
            return self.add("where", condition, x, y, shape=shape)
        return self.add(op, x, y, shape=shape) if self.chance(0.6) else self.add(op, y, x, shape=shape) if (
            op != "divide") else self.add(op, x, y, shape=shape)  # fmt: skip

    def scaled(self, x: int, values: list[int]) -> int:
        """With a constant that broadcasts: a number, a vector along one axis, a whole tensor."""
        shape = self.shapes[x]
        axis = int(self.rng.integers(len(shape)))
        along = tuple([n if k == axis else 1 for k, n in enumerate(shape)])
        kinds = [(1,), along, along[axis:] if axis else along, shape, shape[1:] or (1,)]
        return self.two(x, self.const(*self.pick(kinds), low=self.pick([-1.0, 0.25])), shape)

    # --------------------------------------------------------------------------------------------- movement

    def move(self, x: int, values: list[int]) -> int | None:
        shape = self.shapes[x]
        axis = int(self.rng.integers(len(shape)))
        match int(self.rng.integers(8)):
            case 0:
                order = tuple(map(int, self.rng.permutation(len(shape))))
                return self.add("transpose", x, shape=tuple([shape[a] for a in order]), axes=order)
            case 1:
                flat = (shape[0] * shape[1], *shape[2:]) if len(shape) > 1 else (1, *shape)
                return self.add("reshape", x, shape=flat, newshape=flat)
            case 2:
                y = self.pick([v for v in values if _alike(self.shapes[v], shape, axis)])
                total = shape[axis] + self.shapes[y][axis]
                if total > 24:
                    return None
                return self.add("concatenate", x, y, shape=self._with(shape, axis, total), axis=axis)
            case 3 if shape[axis] > 1:
                begin, step = int(self.rng.integers(0, shape[axis] - 1)), self.pick([1, 1, 2])
                ends = list(shape)
                size = -(-(shape[axis] - begin) // step)
                begins, steps = [0] * len(shape), [1] * len(shape)
                begins[axis], steps[axis] = begin, step
                return self.add("strided_slice", x, shape=self._with(shape, axis, size), begin=tuple(begins),
                                end=tuple(ends), strides=tuple(steps))  # fmt: skip
            case 4:
                widths = tuple(
                    [(0, 0) if k != axis else (self.pick([0, 1, 2]), self.pick([0, 1])) for k in range(len(shape))]
                )
                total = shape[axis] + sum(widths[axis])
                return self.add("nn.pad", x, shape=self._with(shape, axis, total), pad_width=widths)
            case 5 if shape[axis] % 2 == 0:
                half = self._with(shape, axis, shape[axis] // 2)
                parts = self.add("split", x, shape=half, indices_or_sections=2, axis=axis)
                return self.add("item", parts, shape=half, index=self.pick([0, 1]))
            case 6 if shape[axis] > 1:
                at = tuple([int(i) for i in self.rng.integers(0, shape[axis], self.pick([1, 2, 3]))])
                return self.add("take", x, shape=self._with(shape, axis, len(at)), indices=at, axis=axis)
            case 7 if shape[axis] == 1:
                n = self.pick([2, 3])
                return self.add("repeat", x, shape=self._with(shape, axis, n), repeats=n, axis=axis)
        return None

    def _with(self, shape: Shape, axis: int, extent: int) -> Shape:
        return (*shape[:axis], extent, *shape[axis + 1 :])

    # ------------------------------------------------------------------------------------ folds and products

    def reduced(self, x: int, values: list[int]) -> int | None:
        shape = self.shapes[x]
        if len(shape) < 2 or not self.chance(0.5):
            return None
        axis = int(self.rng.integers(len(shape)))
        op, keep = self.pick(["sum", "mean", "max", "min"]), self.chance(0.5)
        out = self._with(shape, axis, 1) if keep else (*shape[:axis], *shape[axis + 1 :])
        found = self.add(op, x, shape=out, axis=(axis,), keepdims=keep)
        if keep and self.chance(0.7):
            return self.two(x, found, shape)
        return found

    def row(self, x: int, values: list[int]) -> int:
        """Softmax and layer norm over an axis."""
        shape = self.shapes[x]
        if self.chance(0.5):
            return self.add(
                self.pick(["nn.softmax", "nn.log_softmax"]), x, shape=shape, axis=self.pick([-1, 1 % len(shape)])
            )
        n = shape[-1]
        return self.add("nn.layer_norm", x, self.const(n), self.const(n), shape=shape, axis=-1, epsilon=0.01)

    def dense(self, x: int, values: list[int]) -> int:
        units = self.pick([1, 3, 5, 8, 16])
        return self.add("nn.dense", x, self.const(units, self.shapes[x][1]), shape=(self.shapes[x][0], units))

    def products(self, x: int, values: list[int]) -> int:
        """A batch of products with a constant, or with itself as in attention."""
        b, n, k = self.shapes[x]
        if self.chance(0.5):
            return self.add("nn.batch_matmul", x, x, shape=(b, n, n), transpose_a=False, transpose_b=True)
        m = self.pick([2, 5, 8])
        return self.add("nn.batch_matmul", x, self.const(b, m, k), shape=(b, n, m), transpose_a=False, transpose_b=True)

    # ------------------------------------------------------------------------------------------ images

    def axes(self) -> tuple[int, int, int]:
        """The axes of channels, height and width."""
        return (1, 2, 3) if self.layout == "NCHW" else (3, 1, 2)

    def image(self, n: int, c: int, h: int, w: int) -> Shape:
        return (n, c, h, w) if self.layout == "NCHW" else (n, h, w, c)

    def conv(self, x: int, values: list[int]) -> int | None:
        shape = self.shapes[x]
        c, h, w = (shape[a] for a in self.axes())
        k, stride, dilation = self.pick([1, 1, 3, 3, 2]), self.pick([1, 1, 1, 2]), self.pick([1, 1, 1, 2])
        p = self.pick([0, k // 2, 1])
        size = [(n + 2 * p - dilation * (k - 1) - 1) // stride + 1 for n in (h, w)]
        if min(size) < 1 or c > 12:
            return None
        groups = self.pick([1, 1, c, 2 if c % 2 == 0 else 1])
        out = c * self.pick([1, 1, 2]) if groups == c else groups * self.pick([1, 2, 3, 4])
        if self.layout == "NCHW":
            layout, weight = "OIHW", (out, c // groups, k, k)
        elif groups == c and c > 1:
            layout, weight = "HWOI", (k, k, c, out // c)
        else:
            layout, weight = "HWIO", (k, k, c // groups, out)
        return self.add("nn.conv2d", x, self.const(*weight), shape=self.image(shape[0], out, *size),
                        strides=(stride, stride), padding=(p, p, p, p), dilation=(dilation, dilation), groups=groups,
                        channels=out, kernel_size=(k, k), data_layout=self.layout, kernel_layout=layout)  # fmt: skip

    def pool(self, x: int, values: list[int]) -> int | None:
        shape = self.shapes[x]
        c, h, w = (shape[a] for a in self.axes())
        k, stride = self.pick([2, 3]), self.pick([1, 2])
        p = self.pick([0, 1])
        size = [(n + 2 * p - k) // stride + 1 for n in (h, w)]
        if min(size) < 1 or self.chance(0.2):
            return self.add("nn.global_avg_pool2d", x, shape=self.image(shape[0], c, 1, 1), layout=self.layout)
        kind = self.pick(["nn.max_pool2d", "nn.avg_pool2d"])
        more = {"count_include_pad": self.chance(0.5)} if kind == "nn.avg_pool2d" else {}
        return self.add(kind, x, shape=self.image(shape[0], c, *size), pool_size=(k, k), strides=(stride, stride),
                        padding=(p, p, p, p), layout=self.layout, **more)  # fmt: skip

    def norm(self, x: int, values: list[int]) -> int:
        """Batch normalization; `item` picks its first result."""
        shape, axis = self.shapes[x], self.axes()[0]
        c = shape[axis]
        vectors = [self.const(c, low=low) for low in (-1.0, -1.0, -1.0)]
        norm = self.add("nn.batch_norm", x, *vectors, self.const(c, low=0.5, high=2.0), shape=shape, axis=axis,
                        epsilon=1e-3, scale=self.chance(0.8), center=self.chance(0.8))  # fmt: skip
        return self.add("item", norm, shape=shape, index=0)

    def bias(self, x: int, values: list[int]) -> int:
        shape = self.shapes[x]
        axis = self.axes()[0] if len(shape) == 4 else 1
        return self.add("nn.bias_add", x, self.const(shape[axis]), shape=shape, axis=axis)

    def tail(self, x: int, values: list[int]) -> int | None:
        if not self.chance(0.4):
            return None
        shape = self.shapes[x]
        return self.add("nn.batch_flatten", x, shape=(shape[0], int(np.prod(shape[1:]))))
