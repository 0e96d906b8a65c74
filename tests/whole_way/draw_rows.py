"""Draws ONNX nodes of rows and windows: folds, norms, products, pools, sorts, running sums, recurrent networks."""

from __future__ import annotations

from typing import Any

from .bounded import Value
from .draw_moves import Moves
from .onnx_recurrent import GATES

FLOAT_FOLDS = ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSum", "LogSumExp")
WHOLE = ("int32", "int64", "uint32", "uint64")


class Rows(Moves):
    """Folds, norms, products, windows."""

    def rows_of_floats(self, value: Value) -> list[Any]:
        sorts: list[Any] = []
        rank = value.v.ndim
        if rank:
            sorts += [self.fold, self.fold, self.best, self.running, self.top, self.softmax, self.softmax,
                      self.layer_norm, self.rms_norm, self.matmul]  # fmt: skip
        if rank == 2:
            sorts += [self.gemm, self.gemm, self.einsum]
        if rank in (3, 4):
            sorts += [self.conv, self.conv, self.conv, self.pool, self.pool, self.channels, self.channels]
        if rank == 4:
            sorts += [self.conv_transposed, self.resize, self.resize, self.depth]
        if rank == 3:
            sorts += [self.recurrent, self.recurrent]
        return sorts

    def rows_of_integers(self, value: Value) -> list[Any]:
        if not value.v.ndim:
            return []
        sorts: list[Any] = [self.best, self.top]
        if value.dtype in WHOLE:
            sorts += [self.fold, self.fold, self.matmul]
        if value.dtype in ("int32", "int64"):
            sorts += [self.running]
        if value.dtype in ("int8", "uint8"):
            sorts += [self.integer_product] + ([self.pool] if value.v.ndim == 4 else [])
        return sorts

    def spot(self, x: int) -> int:
        rank = self.known[x].v.ndim
        return int(self.rng.integers(-rank, rank))

    def fold(self, x: int) -> int | None:
        value, kinds = (
            self.known[x],
            FLOAT_FOLDS if self.known[x].is_float else ("Sum", "Max", "Min", "Prod", "SumSquare", "L1"),
        )
        kind, keep = self.pick(kinds), self.pick([0, 1])
        if kind == "L1" and value.dtype.startswith("u"):
            kind = "Sum"
        if self.chance(0.25):
            return self.put(f"Reduce{kind}", x, keepdims=keep)
        axes = sorted({self.spot(x) % value.v.ndim for _ in range(self.pick([1, 1, 2]))})
        axes = [a - value.v.ndim if self.chance(0.3) else a for a in axes]
        return self.put(f"Reduce{kind}", x, self.ints(axes), keepdims=keep)

    def best(self, x: int) -> int | None:
        if self.chance(0.1) and self.known[x].is_float:
            return self.put("Hardmax", x, axis=self.spot(x))
        return self.put(self.pick(["ArgMax", "ArgMin"]), x, axis=self.spot(x), keepdims=self.pick([0, 1]),
                        select_last_index=self.pick([0, 0, 1]))  # fmt: skip

    def running(self, x: int) -> int | None:
        axis = self.list_of(self.spot(x), self.pick(["int64", "int32"]))
        return self.put("CumSum", x, axis, exclusive=self.pick([0, 0, 1]), reverse=self.pick([0, 1]))

    def top(self, x: int) -> int | None:
        axis = self.spot(x)
        n = self.known[x].v.shape[axis]
        k = self.ints([self.pick([1, max(n // 2, 1), n])])
        return self.several("TopK", x, k, axis=axis, largest=self.pick([0, 1]), sorted=1, results=2)

    def softmax(self, x: int) -> int | None:
        return self.put(self.pick(["Softmax", "LogSoftmax"]), x, axis=self.spot(x))

    def layer_norm(self, x: int) -> int | None:
        shape = self.known[x].v.shape[-1:]
        if self.chance(0.2):
            return self.put("LpNormalization", x, axis=-1, p=self.pick([1, 2]))
        more = [self.like(x, shape, "const") for _ in range(self.pick([1, 2]))]
        return self.put("LayerNormalization", x, *more, axis=-1, epsilon=self.pick([1e-5, 1e-2]))

    def rms_norm(self, x: int) -> int | None:
        return self.put("RMSNormalization", x, self.like(x, self.known[x].v.shape[-1:], "const"), axis=-1, epsilon=1e-3)

    def channels(self, x: int) -> int | None:
        """Norms over images."""
        value = self.known[x]
        c = value.v.shape[1]
        scale, bias, mean = (self.like(x, (c,), "const") for _ in range(3))
        match self.pick(["instance", "group", "batch", "batch", "lrn", "all"]):
            case "instance":
                return self.put("InstanceNormalization", x, scale, bias, epsilon=1e-3)
            case "group":
                return self.put("GroupNormalization", x, scale, bias, num_groups=self.pick([1, c]), epsilon=1e-3)
            case "lrn":
                return self.put("LRN", x, size=self.pick([1, 2, 3]), alpha=0.25, beta=self.pick([0.75, 0.5]))
            case "all" if value.v.ndim == 4:
                return self.put("MeanVarianceNormalization", x)
        spread = self.put("Abs", self.like(x, (c,), "const"))
        return None if spread is None else self.put("BatchNormalization", x, scale, bias, mean, spread, epsilon=0.25)

    # --------------------------------------------------------------------------------- products and windows

    def matmul(self, x: int) -> int | None:
        *_, k = self.known[x].v.shape
        kind = self.pick(["const", "const", "input"])
        y = self.like(
            x, (k, self.pick([1, 2, 5, 8])) if self.chance(0.8) else (k,), kind if not self.first else "const"
        )
        return self.put("MatMul", x, y)

    def gemm(self, x: int) -> int | None:
        a, b = self.pick([0, 1]), self.pick([0, 1])
        n, k = self.known[x].v.shape[:: -1 if a else 1]
        m = self.pick([1, 3, 4, 8])
        y = self.like(x, (m, k) if b else (k, m), "const")
        more = [self.like(x, self.pick([(m,), (1, m), (n, m), ()]), "const")] if self.chance(0.7) else []
        return self.put(
            "Gemm", x, y, *more, transA=a, transB=b, alpha=self.pick([1.0, 0.5]), beta=self.pick([1.0, 0.25])
        )

    def einsum(self, x: int) -> int | None:
        equation = self.pick(["ij,jk->ik", "ij,kj->ki", "ij->ji", "ij->j", "ij,jk->k"])
        _, m = self.known[x].v.shape
        if "," not in equation:
            return self.put("Einsum", x, equation=equation)
        y = self.like(x, (m, 3) if ",j" in equation else (3, m), "const")
        return self.put("Einsum", x, y, equation=equation)

    def integer_product(self, x: int) -> int | None:
        value = self.known[x]
        y = self.put("const", shape=(value.v.shape[-1], 4), dtype=self.pick(["int8", "uint8"]), values="wide")
        if y is None:
            return None
        zeros = [self.list_of(3, value.dtype), self.list_of(2, self.known[y].dtype)]
        return self.put("MatMulInteger", x, y, *zeros[: self.pick([0, 1, 2])])

    def conv(self, x: int) -> int | None:
        value = self.known[x]
        c, rank = value.v.shape[1], value.v.ndim - 2
        groups = self.pick([1, 1, c, 2 if c % 2 == 0 else 1])
        filters = groups * self.pick([1, 2, 3])
        kernel = tuple([self.pick([1, 2, 3, 3]) for _ in range(rank)])
        w = self.like(x, (filters, c // groups, *kernel), "const")
        attrs = {"strides": self.numbers([1, 1, 2], rank), "dilations": self.numbers([1, 1, 2], rank), "group": groups,
                 "pads": self.numbers([0, 1, 1, 2], 2 * rank)}  # fmt: skip
        more = [self.like(x, (filters,), "const")] if self.chance(0.5) else []
        return self.put("Conv", x, w, *more, **attrs)

    def conv_transposed(self, x: int) -> int | None:
        value = self.known[x]
        c = value.v.shape[1]
        groups = self.pick([1, 1, c])
        w = self.like(x, (c, self.pick([1, 2]), self.pick([2, 3]), self.pick([1, 3])), "const")
        strides = self.numbers([1, 2], 2)
        more = [self.like(x, (self.known[w].v.shape[1] * groups,), "const")] if self.chance(0.5) else []
        return self.put("ConvTranspose", x, w, *more, strides=strides, dilations=self.numbers([1, 1, 2], 2),
                        pads=self.numbers([0, 1], 4), group=groups,
                        output_padding=tuple([self.pick(range(s)) for s in strides]))  # fmt: skip

    def numbers(self, of: list[int], count: int) -> tuple[int, ...]:
        return tuple([self.pick(of) for _ in range(count)])

    def recurrent(self, x: int) -> int | None:
        """Of a few steps, with or without a bias, lengths and initial states."""
        steps, batch, inside = self.known[x].v.shape
        op, way, hidden = self.pick(["RNN", "GRU", "LSTM"]), self.pick(["forward", "reverse", "bidirectional"]), 3
        if steps > 7 or batch > 6 or inside > 9:
            return None
        n, ways = GATES[op], 2 if way == "bidirectional" else 1
        w, r = self.like(x, (ways, n * hidden, inside), "const"), self.like(x, (ways, n * hidden, hidden), "const")
        bias = self.like(x, (ways, 2 * n * hidden), "const") if self.chance(0.7) else -1
        lengths = -1
        if self.chance(0.3):
            lengths = self.list_of(self.rng.integers(1, steps + 1, batch).tolist(), "int32")
        states = [self.like(x, (ways, batch, hidden), "const")] if self.chance(0.5) else [-1]
        states += [self.like(x, (ways, batch, hidden), "const") if self.chance(0.5) else -1] if op == "LSTM" else []
        attrs = {"linear_before_reset": self.pick([0, 1])} if op == "GRU" else {}
        return self.several(op, x, w, r, bias, lengths, *states, hidden_size=hidden, direction=way, **attrs,
                            results=3 if op == "LSTM" else 2)  # fmt: skip

    def pool(self, x: int) -> int | None:
        value = self.known[x]
        rank = value.v.ndim - 2
        kernel, strides = self.numbers([1, 2, 3], rank), self.numbers([1, 2], rank)
        if not value.is_float:
            return self.put("MaxPool", x, kernel_shape=kernel, strides=strides)
        pads = [int(self.rng.integers(0, (k + 1) // 2)) for k in (*kernel, *kernel)]
        attrs: dict[str, Any] = {"kernel_shape": kernel, "strides": strides, "pads": tuple(pads)}
        match self.pick(["max", "max", "mean", "mean", "lp", "global"]):
            case "global":
                return self.put(self.pick(["GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"]), x)
            case "mean":
                return self.put("AveragePool", x, **attrs, count_include_pad=self.pick([0, 1]))
            case "lp":
                return self.put("LpPool", x, **attrs)
        return self.put("MaxPool", x, **attrs, dilations=self.numbers([1, 1, 2], rank))
