"""Draws ONNX nodes that move elements."""

from __future__ import annotations

import math

import numpy as np

from .drawing import Drawing

MODES = ("asymmetric", "half_pixel", "align_corners", "pytorch_half_pixel")


class Moves(Drawing):
    """Shapes, slices, gathers, scatters, resizes."""

    def move(self, x: int) -> int | None:
        value = self.known[x]
        if not value.v.ndim:
            return self.put("Unsqueeze", x, self.ints([0])) if self.chance(0.5) else self.put(
                "Expand", x, self.ints([self.pick([1, 3]), 2]))  # fmt: skip
        sorts = [self.reshape, self.transpose, self.slice, self.pad, self.concat, self.split, self.expand, self.ones,
                 self.tile, self.gather, self.gather, self.gather_elements, self.scatter, self.scatter_nd, self.flip,
                 self.one_hot, self.gather_nd]  # fmt: skip
        if value.v.ndim >= 2:
            sorts += [self.triangle, self.reverse]
        if value.v.ndim == 4:
            sorts += [self.depth, self.resize, self.resize]
        return self.pick(sorts)(x)

    def axis(self, x: int) -> int:
        return int(self.rng.integers(self.known[x].v.ndim))

    def reshape(self, x: int) -> int | None:
        shape = self.known[x].v.shape
        if self.chance(0.3):
            return self.put("Flatten", x, axis=self.axis(x))
        k = self.axis(x)
        if self.chance(0.5):
            divisors = [d for d in range(1, shape[k] + 1) if shape[k] % d == 0]
            d = self.pick(divisors)
            new = [*shape[:k], d, shape[k] // d, *shape[k + 1 :]]
        else:
            new = [*shape[:k], math.prod(shape[k : k + 2]), *shape[k + 2 :]]
        return self.put("Reshape", x, self.ints(new if self.chance(0.5) else [-1, *new[1:]]))

    def transpose(self, x: int) -> int | None:
        return self.put("Transpose", x, perm=tuple(map(int, self.rng.permutation(self.known[x].v.ndim))))

    def slice(self, x: int) -> int | None:
        axis = self.axis(x)
        n, step = self.known[x].v.shape[axis], self.pick([1, 1, 2, -1, -2])
        a, b = sorted(self.rng.integers(0, n + 1, 2).tolist())
        start, end = (a, b) if step > 0 else (b, a - 1 if a else -n - 1)
        return self.put("Slice", x, *[self.ints([v]) for v in (start, end, axis, step)])

    def flip(self, x: int) -> int | None:
        axis = self.axis(x)
        return self.put("Slice", x, *[self.ints([v]) for v in (-1, -1000, axis, -1)])

    def pad(self, x: int) -> int | None:
        shape = self.known[x].v.shape
        mode = self.pick(["constant", "constant", "reflect", "edge", "wrap"])
        widths = [[0, 0] for _ in shape]
        for k, n in enumerate(shape):
            if self.chance(0.6):
                most = min(2, n - 1 if mode in ("reflect", "wrap") else 2)
                widths[k] = self.rng.integers(0, most + 1, 2).tolist()
        pads = self.ints([w[0] for w in widths] + [w[1] for w in widths])
        if mode != "constant" or self.chance(0.5):
            return self.put("Pad", x, pads, mode=mode)
        return self.put("Pad", x, pads, self.like(x, (), "const"), mode=mode)

    def concat(self, x: int) -> int | None:
        axis, value = self.axis(x), self.known[x]
        rest = (*value.v.shape[:axis], *value.v.shape[axis + 1 :])
        fitting = [
            k for k in self.tensors()
            if self.known[k].dtype == value.dtype and self.known[k].v.ndim == value.v.ndim
            and (*self.known[k].v.shape[:axis], *self.known[k].v.shape[axis + 1 :]) == rest
        ]  # fmt: skip
        others = [self.pick(fitting) for _ in range(self.pick([1, 1, 2]))]
        if self.chance(0.3):
            others.append(self.like(x, (*value.v.shape[:axis], 2, *value.v.shape[axis + 1 :]), "const"))
        return self.put("Concat", x, *others, axis=axis)

    def split(self, x: int) -> int | None:
        axis = self.axis(x)
        n = self.known[x].v.shape[axis]
        if n < 2:
            return None
        cut = int(self.rng.integers(1, n))
        return self.several("Split", x, self.ints([cut, n - cut]), axis=axis, results=2)

    def expand(self, x: int) -> int | None:
        shape = self.known[x].v.shape
        new = [n if n != 1 or self.chance(0.5) else self.pick([2, 3]) for n in shape]
        return self.put("Expand", x, self.ints([2, *new] if self.chance(0.2) else new))

    def ones(self, x: int) -> int | None:
        shape = self.known[x].v.shape
        spots = [k for k, n in enumerate(shape) if n == 1]
        if spots and self.chance(0.6):
            return self.put("Squeeze", x, self.ints([self.pick(spots)]))
        return self.put("Unsqueeze", x, self.ints([int(self.rng.integers(len(shape) + 1))])) if len(shape) < 5 else None

    def tile(self, x: int) -> int | None:
        return self.put("Tile", x, self.ints([self.pick([1, 1, 2, 3]) for _ in self.known[x].v.shape]))

    def triangle(self, x: int) -> int | None:
        return self.put("Trilu", x, self.list_of(self.pick([-1, 0, 1]), "int64"), upper=self.pick([0, 1]))

    def reverse(self, x: int) -> int | None:
        shape, (time, batch) = self.known[x].v.shape, self.pick([(0, 1), (1, 0)])
        lengths = self.ints(self.rng.integers(1, shape[time] + 1, shape[batch]))
        return self.put("ReverseSequence", x, lengths, time_axis=time, batch_axis=batch)

    def depth(self, x: int) -> int | None:
        _, c, h, w = self.known[x].v.shape
        if c % 4 == 0:
            return self.put("DepthToSpace", x, blocksize=2, mode=self.pick(["DCR", "CRD"]))
        return self.put("SpaceToDepth", x, blocksize=2) if h % 2 == w % 2 == 0 else None

    # ------------------------------------------------------------------------------------------- by indices

    def indices(self, shape: tuple[int, ...], n: int) -> int:
        """Positions on an axis of n, some from the end; known when the model is read, or given to it."""
        values = self.rng.integers(-n, n, shape)
        k = self.put("list", values=_nested(values), dtype=self.pick(["int64", "int32"]))
        assert k is not None
        if self.chance(0.5):
            zero = self.put("input", shape=shape, dtype=self.nodes[k - self.first][2]["dtype"], values="zero")
            if self.first == 0 and zero is not None:
                return self.put("Add", k, zero) or k
        return k

    def gather(self, x: int) -> int | None:
        axis = self.axis(x)
        shape = self.pick([(), (1,), (3,), (2, 2)])
        return self.put("Gather", x, self.indices(shape, self.known[x].v.shape[axis]), axis=axis)

    def gather_elements(self, x: int) -> int | None:
        axis, shape = self.axis(x), self.known[x].v.shape
        new = tuple([self.pick([1, 3]) if a == axis else int(self.rng.integers(1, n + 1)) for a, n in enumerate(shape)])
        return self.put("GatherElements", x, self.indices(new, shape[axis]), axis=axis)

    def gather_nd(self, x: int) -> int | None:
        shape = self.known[x].v.shape
        depth = self.pick([1, min(2, len(shape))])
        places = [[int(self.rng.integers(-n, n)) for n in shape[:depth]] for _ in range(self.pick([1, 3]))]
        k = self.put("list", values=_nested(np.array(places)), dtype="int64")
        return None if k is None else self.put("GatherND", x, k)

    def scatter(self, x: int) -> int | None:
        """Of places that are all different where the last one would win."""
        axis, shape = self.axis(x), self.known[x].v.shape
        how = self.pick(["none", "none", *self.meetings(x)])
        count = min(shape[axis], 3)
        new = tuple([count if a == axis else int(self.rng.integers(1, n + 1)) for a, n in enumerate(shape)])
        if how == "none":
            rows = self.rng.permuted(np.tile(np.arange(shape[axis]), (math.prod(new) // count, 1)), axis=1)[:, :count]
            rest = [n for a, n in enumerate(new) if a != axis]
            values = np.moveaxis(rows.reshape(*rest, count), -1, axis)
        else:
            values = self.rng.integers(-shape[axis], shape[axis], new)
        if values.size > 100:
            return None
        k = self.put("list", values=_nested(values), dtype="int64")
        updates = self.like(x, new, "const", "wide")
        return None if k is None else self.put("ScatterElements", x, k, updates, axis=axis, reduction=how)

    def meetings(self, x: int) -> list[str]:
        """The reductions of a scatter; of bools there are none."""
        return ["none"] if self.known[x].dtype == "bool" else ["add", "mul", "max", "min"]

    def scatter_nd(self, x: int) -> int | None:
        shape = self.known[x].v.shape
        how, n = self.pick(["none", *self.meetings(x)]), shape[0]
        rows = self.rng.permutation(n)[: min(n, 3)] if how == "none" else self.rng.integers(0, n, 3)
        updates = self.like(x, (len(rows), *shape[1:]), "const")
        places = self.put("list", values=_nested(rows[:, None]), dtype="int64")
        return None if places is None else self.put("ScatterND", x, places, updates, reduction=how)

    def one_hot(self, x: int) -> int | None:
        value = self.known[x]
        if value.dtype not in ("int64", "int32") or value.v.size > 200:
            return None
        depth = self.list_of(self.pick([3, 5]), "int64")
        pair = self.list_of([0, 1], self.pick(["float32", "int64"]))
        return self.put("OneHot", x, depth, pair, axis=self.pick([-1, 0]))

    # ---------------------------------------------------------------------------------------------- resizes

    def resize(self, x: int) -> int | None:
        """Of images: nearest ones by factors whose places are exact."""
        value = self.known[x]
        if not value.is_float:
            return None
        n, c, h, w = value.v.shape
        mode = self.pick(["nearest", "nearest", "linear", "linear", "cubic"])
        attrs = {"mode": mode, "coordinate_transformation_mode": self.pick(MODES)}
        if mode == "nearest":
            attrs["coordinate_transformation_mode"] = self.pick(["asymmetric", "half_pixel"])
            attrs["nearest_mode"] = self.pick(["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"])
            sizes = [m * self.pick([1, 2]) if m % 2 or self.chance(0.6) else m // 2 for m in (h, w)]
        else:
            sizes = [max(1, m + self.pick([-2, -1, 0, 1, 3, m])) for m in (h, w)]
        return self.put("Resize", x, -1, -1, self.ints([n, c, *sizes]), **attrs)


def _nested(x: np.ndarray) -> object:
    def nested(y: object) -> object:
        return tuple(map(nested, y)) if isinstance(y, list) else y

    return nested(x.tolist())
