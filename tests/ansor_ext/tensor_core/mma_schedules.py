"""Matrix products on tensor cores as schedules, for tests of what they mean and of the kernels they become."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

import te_lite as te
from ansor_ext.tensor_core.mma import Element, Mma, mma
from ansor_ext.tensor_core.mma_meaning import operands, product


def multiplied(op: Mma, a: np.ndarray, b: np.ndarray) -> list[np.ndarray]:
    """What an instruction multiplies of its operands, in float64."""
    return [np.sum([x.astype("float64") for x in parts], axis=0) for parts in operands(op, a, b)]


def nearest_tf32(x: np.ndarray) -> np.ndarray:
    """The nearest number with a significand of 11 bits, or below 2^-126 a multiple of 2^-136, ties to an even one."""
    with np.errstate(all="ignore"):
        unit = np.ldexp(1.0, np.maximum(np.frexp(x.astype("float64"))[1], -125) - 11)
        return np.where(np.isfinite(x), np.rint(x / unit) * unit, x).astype("float32")


def left_out(element: Element) -> float:
    """How far a sum of products is off, of the sum of their sizes, before it is rounded.

    Of floats in parts the least product, and roundings of three sums.
    """
    return 2.0**-22 + 3 * 2.0**-24 if element.parts > 1 else 0.0


@dataclass(frozen=True)
class Tiled:
    """C[M, N] = A[M, K] * B[K, N]: blocks of `block` (m, n, k), warps of `warp` (m, n).

    `turned`: B is stored [N, K]; `across`: A is stored [K, M].

    There is room for `tiles` tiles of A and of B, which are fetched ahead; `swizzled` ones are stored so.
    The operands `matrices` are loaded by `ldmatrix`, with `pairs` two tiles of B at a time.  Rows of
    tiles in shared memory are `padding` elements longer than a multiple of 32.
    The instruction is the loops `order`, from `tensorized` on.
    """

    name: str
    sizes: tuple[int, int, int]
    block: tuple[int, int, int]
    warp: tuple[int, int]
    turned: bool = False
    across: bool = False
    tiles: int = 1
    swizzled: bool = False
    matrices: str = ""
    pairs: bool = False
    padding: int = 0
    order: str = "ijk"
    tensorized: str = "i"

    @property
    def op(self) -> Mma:
        return mma(self.name)

    @property
    def warps(self) -> int:
        return self.block[0] // self.warp[0] * (self.block[1] // self.warp[1])

    def tensors(self) -> list[te.Tensor]:
        m, n, k = self.sizes
        first, second = self.op.dtypes
        a = te.placeholder((k, m) if self.across else (m, k), name="A", dtype=first)
        b = te.placeholder((n, k) if self.turned else (k, n), name="B", dtype=second)
        r = te.reduce_axis((0, k), "k")
        c = te.compute(
            (m, n),
            lambda i, j: te.sum(
                product(self.op, a[r, i] if self.across else a[i, r], b[j, r] if self.turned else b[r, j]), axis=r
            ),
            name="C",
        )
        return [a, b, c]

    def schedule(self, tensors: list[te.Tensor]) -> te.Schedule:
        """Shared tiles, fragments of them, sums in fragments."""
        a, b, c = tensors
        s = te.create_schedule(c.op)
        return self.tiled(s, a, b, s.cache_write(c, self.scope("d")), c)

    def tiled(self, s: te.Schedule, a: te.Tensor, b: te.Tensor, sums: te.Tensor, c: te.Tensor) -> te.Schedule:
        """The same, where `sums` in fragments are stored to `c`."""
        shared_a, shared_b = s.cache_read(a, "shared", [sums]), s.cache_read(b, "shared", [sums])
        part_a = s.cache_read(shared_a, self.scope("a"), [sums])
        part_b = s.cache_read(shared_b, self.scope("b"), [sums])
        warp = self.blocks(s, c)
        s[sums].compute_at(s[c], warp)
        outer, inner = self.multiply(s, sums)
        for tile in (shared_a, shared_b):
            s[tile].compute_at(s[sums], outer)
            self.fetch(s, tile)
        for part, operand in ((part_a, "a"), (part_b, "b")):
            s[part].compute_at(s[sums], inner)
            rows, columns = s[part].op.axis
            if self.turned if operand == "b" else self.across:
                s[part].storage_order(1, 0)
                rows, columns = columns, rows
            self.load(s, part, operand, rows, columns)
        return s

    def load(self, s: te.Schedule, part: te.Tensor, operand: str, rows: te.IterVar, columns: te.IterVar) -> None:
        """Fragments from shared memory: by `ldmatrix`, or each lane its values."""
        if operand in self.matrices:
            f = self.op.fragment(operand)
            tile_i, i = s[part].split(rows, f.rows)
            tile_j, j = s[part].split(columns, f.columns * (2 if operand == "b" and self.pairs else 1))
            s[part].reorder(tile_i, tile_j, i, j)
            s[part].tensorize(i)
            return
        _, _, _, values = s[part].split_fragment(rows, columns, self.split(operand))
        if (operand == "a" or self.turned) and self.op.element.nbytes < 4:
            s[part].vectorize(values[-1])

    def scope(self, operand: str) -> str:
        return f"fragment.{self.name}.{operand}"

    def split(self, operand: str) -> str:
        """The fragment as which an operand is split."""
        return f"{self.name}.{operand}"

    def blocks(self, s: te.Schedule, c: te.Tensor) -> te.schedule.schedule.Loop:
        """Blocks, warps and lanes of the result; gives the loop over warps."""
        rows, columns = s[c].op.axis
        block_i, i = s[c].split(rows, self.block[0])
        block_j, j = s[c].split(columns, self.block[1])
        warp_i, i = s[c].split(i, self.warp[0])
        warp_j, j = s[c].split(j, self.warp[1])
        s[c].reorder(block_i, block_j, warp_i, warp_j, i, j)
        warp = s[c].fuse(warp_i, warp_j)
        for loop, axis in ((block_i, "blockIdx.y"), (block_j, "blockIdx.x"), (warp, "threadIdx.y")):
            s[c].bind(loop, te.thread_axis(axis))
        _, _, _, values = s[c].split_fragment(i, j, self.split("d"))
        s[c].vectorize(values[-1])
        return warp

    def multiply(self, s: te.Schedule, sums: te.Tensor) -> tuple[te.schedule.schedule.Loop, te.schedule.schedule.Loop]:
        """The loops of the sums; gives those at which tiles and fragments are fetched."""
        (i, j), (k,) = s[sums].op.axis, s[sums].op.reduce_axis
        outer, k = s[sums].split(k, self.block[2])
        inner, k = s[sums].split(k, self.op.k)
        tile_i, i = s[sums].split(i, self.op.m)
        tile_j, j = s[sums].split(j, self.op.n)
        loops = {"i": i, "j": j, "k": k}
        s[sums].reorder(outer, inner, tile_i, tile_j, *[loops[x] for x in self.order])
        s[sums].tensorize(loops[self.tensorized])
        return outer, inner

    def fetch(self, s: te.Schedule, tile: te.Tensor) -> None:
        """All threads of a block fetch a tile in vectors of 16 bytes."""
        rows, columns = s[tile].op.axis
        if self.padding:
            s[tile].storage_align(rows, 32, self.padding)
        loop = s[tile].fuse(rows, columns)
        loop, vector = s[tile].split(loop, 16 // self.op.element.nbytes)
        loop, lane = s[tile].split(loop, 32)
        loop, warp = s[tile].split(loop, self.warps)
        s[tile].bind(lane, te.thread_axis("threadIdx.x"))
        s[tile].bind(warp, te.thread_axis("threadIdx.y"))
        s[tile].vectorize(vector)
        if self.swizzled:
            s[tile].swizzle()
        if self.tiles > 1:
            s[tile].pipeline(self.tiles)

    def inputs(self, rng: np.random.Generator) -> list[np.ndarray]:
        """Random A and B."""
        m, n, k = self.sizes
        shapes = (k, m) if self.across else (m, k), (n, k) if self.turned else (k, n)
        if self.op.element.dtype == "int8":
            return [rng.integers(-128, 128, s).astype("int8") for s in shapes]
        return [rng.standard_normal(s).astype(t) for s, t in zip(shapes, self.op.dtypes, strict=True)]

    def wrong(self, a: np.ndarray, b: np.ndarray, got: np.ndarray, roundings: float = 1) -> str | None:
        """How far a result is from the exact one, where `roundings` of the sums an instruction do not explain that."""
        x, y = multiplied(self.op, a.T if self.across else a, b.T if self.turned else b)
        exact, size = x @ y, np.abs(x) @ np.abs(y)
        unit = {"int32": 0.0, "float16": 2.0**-11, "float32": 2.0**-24}[self.op.sum.dtype]
        steps = -(-self.sizes[2] // self.op.k)
        error = np.abs(got - exact) - (steps * roundings * unit + left_out(self.op.element)) * 1.01 * size
        return None if (error <= 0).all() else f"off by {error.max()} more than allowed"


PROGRAMS = {
    "half": Tiled("m16n8k16_f16_f32", (64, 48, 64), (32, 24, 32), (16, 24)),
    "half, larger warps": Tiled("m16n8k16_f16_f32", (64, 64, 64), (64, 64, 32), (32, 32), turned=True),
    "half, ahead": Tiled("m16n8k16_f16_f32", (64, 32, 96), (32, 32, 32), (16, 16), tiles=2),
    "half sums": Tiled("m16n8k16_f16_f16", (32, 32, 64), (32, 32, 64), (32, 16)),
    "bfloat16": Tiled("m16n8k16_bf16_f32", (32, 32, 48), (32, 16, 16), (16, 16), turned=True),
    "tf32": Tiled("m16n8k8_tf32_f32", (32, 64, 40), (32, 32, 8), (16, 32)),
    "tf32, ahead": Tiled("m16n8k8_tf32_f32", (32, 32, 64), (32, 32, 16), (32, 16), turned=True, tiles=2),
    "swizzled": Tiled("m16n8k16_f16_f32", (64, 64, 64), (32, 64, 32), (16, 32), tiles=2, swizzled=True),
    "tf32, swizzled": Tiled("m16n8k8_tf32_f32", (32, 40, 70), (32, 32, 32), (16, 16), turned=True, swizzled=True),
    "matrices": Tiled("m16n8k16_f16_f32", (64, 64, 64), (32, 64, 32), (16, 32), matrices="ab"),
    "matrices, swizzled": Tiled("m16n8k16_f16_f32", (64, 64, 96), (64, 64, 32), (32, 32), tiles=3, swizzled=True,
                                matrices="ab", pairs=True),
    "matrices, turned": Tiled("m16n8k16_bf16_f32", (50, 64, 90), (32, 32, 64), (32, 16), turned=True, swizzled=True,
                              matrices="ab", pairs=True),
    "matrices, tf32": Tiled("m16n8k8_tf32_f32", (32, 40, 70), (32, 32, 32), (16, 16), turned=True, swizzled=True,
                            tiles=2, matrices="ab", pairs=True),
    "matrices, int8": Tiled("m16n8k32_s8_s32", (32, 48, 128), (32, 48, 64), (16, 24), turned=True, swizzled=True,
                            matrices="ab"),
    "tf32x3": Tiled("m16n8k8_tf32x3_f32", (32, 64, 64), (32, 32, 32), (16, 32), tiles=2),
    "matrices, tf32x3": Tiled("m16n8k8_tf32x3_f32", (32, 40, 70), (32, 32, 32), (16, 16), turned=True, swizzled=True,
                              tiles=2, matrices="ab", pairs=True),
    "other order": Tiled("m16n8k16_f16_f32", (32, 32, 32), (32, 16, 32), (16, 16), order="kji", tensorized="k"),
    "beyond the edge": Tiled("m16n8k16_f16_f32", (53, 41, 61), (32, 24, 32), (16, 24), tiles=2),
    "tf32, beyond the edge": Tiled("m16n8k8_tf32_f32", (18, 33, 45), (32, 32, 16), (32, 16), turned=True),
    "int8": Tiled("m16n8k32_s8_s32", (32, 48, 64), (16, 48, 32), (16, 16), turned=True),
    "float8": Tiled("m16n8k32_e4m3_f32", (32, 48, 64), (16, 48, 32), (16, 16), turned=True),
    "float8 of two kinds": Tiled("m16n8k32_e5m2_e4m3_f32", (32, 48, 128), (32, 48, 64), (16, 24), turned=True,
                                 swizzled=True, matrices="ab"),
}  # fmt: skip

_HALF = Tiled("wgmma_k16_f16_f32", (128, 64, 160), (64, 64, 64), (16, 64), turned=True, tiles=3, swizzled=True,
             matrices="ab", pairs=True)  # fmt: skip
GROUPS = {
    "half": _HALF,
    "half, two tiles of rows a warp": replace(_HALF, block=(128, 32, 64), warp=(32, 32)),
    "half, a tile that waits": replace(_HALF, tiles=1),
    "half, terms in rows": replace(_HALF, across=True),
    "half, many columns": replace(_HALF, sizes=(64, 128, 256), block=(64, 128, 64), warp=(16, 128)),
    "half, columns in rows": replace(_HALF, turned=False),
    "half, four tiles": replace(_HALF, sizes=(64, 64, 400), tiles=4),
    "half, four tiles, two groups": replace(_HALF, sizes=(128, 48, 330), block=(128, 48, 64), warp=(16, 48), tiles=4),
    "half, two groups": replace(_HALF, sizes=(128, 96, 100), block=(128, 48, 64), warp=(16, 48)),
    "half, beyond the edge": replace(_HALF, sizes=(75, 90, 90)),
    "half, rows that ldmatrix does not load": replace(_HALF, matrices="b"),
    "bfloat16": replace(_HALF, name="wgmma_k16_bf16_f32"),
    "tf32": replace(_HALF, name="wgmma_k8_tf32_f32", sizes=(64, 64, 80), block=(64, 64, 32)),
    "tf32, four tiles": replace(
        _HALF, name="wgmma_k8_tf32_f32", sizes=(64, 96, 170), block=(64, 48, 32), warp=(16, 48), tiles=4
    ),
    "int8": replace(_HALF, name="wgmma_k32_s8_s32", sizes=(64, 64, 160), block=(64, 64, 128)),
    "float8": replace(_HALF, name="wgmma_k32_e5m2_f32", sizes=(64, 64, 160), block=(64, 64, 128)),
    "float8 of two kinds, rows loaded": replace(
        _HALF, name="wgmma_k32_e4m3_e5m2_f32", sizes=(64, 64, 160), block=(64, 64, 128), matrices="b"
    ),
    "tf32x3": replace(_HALF, name="wgmma_k8_tf32x3_f32", sizes=(64, 64, 144), block=(64, 64, 32)),
    "tf32x3, a tile that waits": replace(
        _HALF, name="wgmma_k8_tf32x3_f32", sizes=(75, 64, 70), block=(64, 64, 32), tiles=1
    ),
}
"""Programs of warps in groups."""


@dataclass(frozen=True)
class Ring(Tiled):
    """The same with tiles in boxes, which one thread copies: as the copy engine does.

    `blocks_at_once` blocks compute one part of the result after the other, of which `beside` rows of blocks follow each
    other.  The result has the dtype `out`, and `bias` is added to its rows.  Without the `engine` all threads copy.
    In a `cluster` are two neighbours along "rows" of blocks or "columns".
    """

    blocks_at_once: int = 2
    beside: int = 2
    engine: bool = True
    out: str = "float32"
    bias: bool = False
    cluster: str = ""

    def tensors(self) -> list[te.Tensor]:
        a, b, c = super().tensors()
        if self.out == c.dtype and not self.bias:
            return [a, b, c]
        z = te.placeholder((self.sizes[1],), name="Z", dtype=c.dtype)
        value = lambda i, j: c[i, j] + z[j] if self.bias else c[i, j]  # noqa: E731
        result = te.compute(c.shape, lambda i, j: te.cast(self.out, value(i, j)), name="D")
        return [a, b, *([z] if self.bias else []), result]

    def schedule(self, tensors: list[te.Tensor]) -> te.Schedule:
        if len(tensors) == 3 and tensors[2].op.reduce_axis:
            return super().schedule(tensors)
        a, b, *_, result = tensors
        s = te.create_schedule(result.op)
        (sums,) = [x for x in result.op.input_tensors() if x.op.reduce_axis]
        s[sums].set_scope(self.scope("d"))
        return self.tiled(s, a, b, sums, result)

    def fetch(self, s: te.Schedule, tile: te.Tensor) -> None:
        """Nobody shares the work out, but without the engine."""
        if not self.engine:
            return super().fetch(s, tile)
        s[tile].pipeline(self.tiles, by="copy engine")
        return None

    def blocks(self, s: te.Schedule, c: te.Tensor) -> te.schedule.schedule.Loop:
        rows, columns = s[c].op.axis
        block_i, i = s[c].split(rows, self.block[0])
        block_j, j = s[c].split(columns, self.block[1])
        warp_i, i = s[c].split(i, self.warp[0])
        warp_j, j = s[c].split(j, self.warp[1])
        block_i, together = s[c].split(block_i, self.beside)
        pair = []
        if self.cluster == "rows":
            together, *pair = s[c].split(together, 2)
        elif self.cluster:
            block_j, *pair = s[c].split(block_j, 2)
        for loop in pair:
            s[c].bind(loop, te.thread_axis("blockIdx.y"))
        s[c].reorder(block_i, block_j, together, *pair, warp_i, warp_j, i, j)
        _, block = s[c].split(s[c].fuse(block_i, block_j, together), self.blocks_at_once)
        warp = s[c].fuse(warp_i, warp_j)
        s[c].bind(block, te.thread_axis("blockIdx.x"))
        s[c].bind(warp, te.thread_axis("threadIdx.y"))
        _, _, _, values = s[c].split_fragment(i, j, self.split("d"))
        s[c].vectorize(values[-1])
        return warp


_RING = Ring("wgmma_k16_f16_f32", (150, 136, 200), (64, 64, 64), (16, 64), tiles=4, matrices="ab", pairs=True)
_TF32_RING = replace(_RING, name="wgmma_k8_tf32_f32_nearest", block=(64, 64, 32), turned=True)
RINGS = {
    "half": _RING,
    "half, both factors along the terms": replace(_RING, turned=True, block=(64, 48, 64), warp=(16, 48)),
    "half, both factors across the terms": replace(_RING, sizes=(152, 136, 200), across=True),
    "half, two groups, many columns": replace(_RING, sizes=(264, 264, 328), block=(128, 128, 64), warp=(16, 128)),
    "half, two groups, registers shared out": replace(
        _RING, sizes=(130, 256, 136), block=(128, 256, 64), warp=(16, 256), tiles=2, out="float16"
    ),
    "half, more tiles than iterations": replace(_RING, tiles=8, out="float16"),
    "half, three tiles": replace(_RING, sizes=(70, 128, 520), tiles=3, blocks_at_once=1),
    "half, with bias": replace(_RING, out="float16", bias=True),
    "half, columns that are stored twice": replace(
        _RING, sizes=(150, 240, 200), block=(64, 80, 64), warp=(16, 80), turned=True, out="float16"
    ),
    "half, a part between that is left out": replace(
        _RING, sizes=(192, 160, 200), block=(64, 32, 64), warp=(16, 32), turned=True, blocks_at_once=3
    ),
    "half, one part a block": replace(_RING, blocks_at_once=64),
    "half, six tiles, less at the edges": replace(
        _RING, sizes=(70, 88, 520), block=(64, 72, 64), warp=(16, 72), turned=True, pairs=False, tiles=6, out="float16"
    ),
    "half, five tiles, two groups, less at the edges": replace(
        _RING, sizes=(300, 200, 136), block=(128, 88, 64), warp=(16, 88), turned=True, pairs=False, tiles=5
    ),
    "bfloat16": replace(_RING, name="wgmma_k16_bf16_f32", sizes=(64, 128, 192)),
    "int8": replace(_RING, name="wgmma_k32_s8_s32", sizes=(200, 144, 400), block=(128, 48, 128), warp=(16, 48),
                    turned=True, out="int32"),
    "float8": replace(_RING, name="wgmma_k32_e4m3_f32", sizes=(200, 144, 400), block=(128, 40, 128), warp=(16, 40),
                      turned=True, out="bfloat16", bias=True, pairs=False),
    "float8 of two kinds": replace(_RING, name="wgmma_k32_e4m3_e5m2_f32", sizes=(130, 144, 400), block=(64, 48, 128),
                                   warp=(16, 48), turned=True),
    "tf32": _TF32_RING,
    "tf32, two groups": replace(_TF32_RING, sizes=(200, 264, 300), block=(128, 128, 32), warp=(16, 128)),
    "tf32, two groups, registers shared out": replace(
        _TF32_RING, sizes=(130, 256, 68), block=(128, 256, 32), warp=(16, 256), tiles=2
    ),
    "tf32, one part a block": replace(_TF32_RING, sizes=(70, 96, 164), block=(64, 48, 32), warp=(16, 48),
                                      blocks_at_once=64, bias=True),
}  # fmt: skip
"""Programs whose tiles are a ring."""
PAIRS = {
    "half": replace(_RING, cluster="rows"),
    "half, both factors along the terms": replace(
        _RING, turned=True, block=(64, 48, 64), warp=(16, 48), blocks_at_once=1, cluster="rows"
    ),
    "half, with bias": replace(_RING, out="float16", bias=True, cluster="rows", sizes=(70, 136, 200)),
    "half, two groups": replace(
        _RING, sizes=(264, 136, 200), block=(128, 128, 64), warp=(16, 128), cluster="rows", beside=4
    ),
    "half, columns of blocks": replace(_RING, sizes=(150, 200, 200), cluster="columns"),
    "half, columns of blocks, two groups": replace(
        _RING, sizes=(130, 136, 200), block=(128, 128, 64), warp=(16, 128), turned=True, cluster="columns"
    ),
    "half, one part a block": replace(_RING, blocks_at_once=64, cluster="rows"),
    "half, one row of blocks": replace(_RING, sizes=(64, 136, 200), blocks_at_once=64, cluster="rows"),
    "half, three tiles": replace(_RING, sizes=(70, 128, 520), tiles=3, cluster="rows"),
    "half, less at the edge": replace(
        _RING, sizes=(70, 88, 520), block=(64, 80, 64), warp=(16, 80), turned=True, tiles=5, cluster="columns"
    ),
    "int8": replace(_RING, name="wgmma_k32_s8_s32", sizes=(200, 144, 400), block=(64, 48, 128), warp=(16, 48),
                    turned=True, out="int32", cluster="rows"),
    "float8": replace(_RING, name="wgmma_k32_e5m2_e4m3_f32", sizes=(200, 144, 400), block=(64, 48, 128),
                      warp=(16, 48), turned=True, out="float16", cluster="rows"),
}  # fmt: skip
"""Those of which two blocks are a cluster."""
