"""Products in sliced tiles: which stages and tiles there are, and what their programs compute on the emulator."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import te_lite as te
from ansor.core.target.hardware import HardwareParams
from ansor.core.target.target import Target
from ansor.sketch.generate import extra_sketches
from ansor.sketch.rule import SketchContext
from ansor_ext.register_tiles.sliced_tiles import VARIANTS, best_tiles, shape_of
from ansor_ext.register_tiles.tile_cost import WORD, BlockTile, Product, cycles, in_squares, resident, shared_words
from benchmarks import workloads as benchmarks
from codegen_cuda import emit
from te_lite import ComputeDAG, Tensor
from te_lite.schedule.stage_steps import RFactor
from te_lite.schedule.state import State
from tests.amount import some
from tests.ansor.sketch_cases import matmul
from tests.ansor_ext.register_tiles.test_register_tiles import biased
from tests.ansor_ext.tensor_core.test_tensor_core_rule import matmul as product_of
from tests.ansor_ext.test_extra_rules import emulated
from tests.drawn_programs import drawn_program
from tests.oracle import Oracle

H200 = Target.of("cuda -model=h200")
HARDWARE = HardwareParams(target=H200).completed(H200)
SHARED = HARDWARE.max_shared_memory_per_block


def sketches_of(dag: ComputeDAG, hardware: HardwareParams = HARDWARE) -> list[State]:
    return extra_sketches(dag, H200, hardware, rules=["sliced_tiles"])


def scaled_rows(m: int, n: int, k: int) -> list[Tensor]:
    """A product whose first factor is computed, and inlined."""
    a, b = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    twice = te.compute((m, k), lambda i, j: a[i, j] * 2.0, name="twice")
    r = te.reduce_axis((0, k), name="r")
    return [a, b, te.compute((m, n), lambda i, j: te.sum(twice[i, r] * b[r, j], axis=r), name="C")]


def scores(heads: int, tokens: int, width: int) -> list[Tensor]:
    """Queries times keys by head, both slices of one matrix [tokens, 2*heads*width], scaled."""
    packed = te.placeholder((tokens, 2 * heads * width), name="P")
    queries, keys = [
        te.compute((heads, tokens, width), lambda h, i, k, at=at: packed[i, h * width + k + at], name=name)
        for name, at in (("Q", 0), ("K", heads * width))
    ]
    product = te.topi.nn.batch_matmul(queries, keys)
    return [packed, te.compute(product.shape, lambda h, i, j: product[h, i, j] * 0.5, name="C")]


def side_by_side(heads: int, tokens: int, width: int, columns: int) -> list[Tensor]:
    """Rows by head side by side [tokens, heads*width], times a matrix, and an epilogue."""
    a, b = te.placeholder((heads, tokens, width), name="A"), te.placeholder((heads * width, columns), name="B")
    rows = te.compute((tokens, heads * width), lambda i, k: a[k // width, i, k % width], name="R")
    product = te.topi.nn.matmul(rows, b)
    return [a, b, te.compute(product.shape, lambda i, j: product[i, j] + 1.0, name="C")]


def turned(m: int, n: int, k: int) -> list[Tensor]:
    """A factor that is read across its memory."""
    a, b = te.placeholder((k, m), name="A"), te.placeholder((k, n), name="B")
    rows = te.compute((m, k), lambda i, j: a[j, i], name="R")
    return [a, b, te.topi.nn.matmul(rows, b)]


def differences(m: int, n: int, k: int) -> list[Tensor]:
    """No product, but a sum over two factors all the same; zeros beyond the edge of one alone would count."""
    a, b = te.placeholder((m, k), name="A"), te.placeholder((n, k), name="B")
    r = te.reduce_axis((0, k), name="r")
    return [a, b, te.compute((m, n), lambda i, j: te.sum(te.abs(a[i, r] - b[j, r]), axis=r), name="C")]


PRODUCTS: dict[str, tuple[Callable[[], list[Tensor]], bool]] = {
    "whole tiles": (lambda: matmul(64, 128, 64), True),
    "tiles that run over": (lambda: matmul(63, 125, 53), True),
    "primes": (lambda: matmul(61, 67, 71), True),
    "weights by rows": (lambda: benchmarks.dense(61, 48, 125), True),
    "batches": (lambda: benchmarks.batch_matmul(2, 64, 64, 37), True),
    "an epilogue": (lambda: biased(60, 64, 33), True),
    "parts": (lambda: matmul(40, 40, 512), True),
    "parts and an epilogue": (lambda: biased(40, 61, 256), True),
    "turns of no power of two": (lambda: matmul(40, 64, 100), True),
    "differences": (lambda: differences(37, 41, 45), True),
    "factors that are moved": (lambda: scores(2, 61, 40), True),
    "a moved factor and an epilogue": (lambda: side_by_side(3, 37, 20, 52), True),
    "parts of a moved factor": (lambda: side_by_side(4, 40, 64, 40), True),
    "a transposed factor": (lambda: turned(45, 64, 50), True),
    "an inlined factor": (lambda: scaled_rows(64, 64, 64), False),
    "one row": (lambda: matmul(1, 256, 64), False),
    "few terms": (lambda: matmul(64, 64, 15), False),
    "a convolution": (lambda: benchmarks.conv2d(1, 8, 8, 64, 64, 3, 1, 1), False),
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.one_in(3)
def test_products(name: str) -> None:
    """What every other sketch computes on the emulator, which finds races and bad accesses, too."""
    make, expected = PRODUCTS[name]
    dag = ComputeDAG(make())
    sketches = sketches_of(dag)
    assert bool(sketches) == expected
    oracle = Oracle(dag, np.random.default_rng(3))
    for sketch in sketches[:: some(3, 6)]:
        state = drawn_program(sketch, H200, HARDWARE, np.random.default_rng(2))
        assert state is not None
        assert oracle.mismatch(te.lower(state), emulated) is None


@pytest.mark.slow
def test_slices_share_a_block() -> None:
    """As many threads a slice; their sums meet in shared memory; parts over blocks are factored out once more."""
    dag = ComputeDAG(matmul(197, 768, 768))
    ctx = SketchContext(dag, H200, HARDWARE)
    shape = shape_of(ctx, dag.init_state, 2)
    assert shape is not None and shape.product == Product(1, 197, 768, 768, (True, False), (4, 4))
    tiles, sketches = best_tiles(shape.product, SHARED), sketches_of(dag)
    assert {tile.slices for tile in tiles} > {1} and {tile.parts for tile in tiles} > {1}
    for tile, sketch in zip(tiles, sketches, strict=True):
        factored = sum(isinstance(step, RFactor) for step in sketch.steps)
        assert factored == (tile.slices > 1) + (tile.parts > 1)
        state = drawn_program(sketch, H200, HARDWARE, np.random.default_rng(2))
        assert state is not None
        program = emit(te.lower(state))
        kernel, *_ = program.kernels
        most = WORD * shared_words(tile, shape.product)
        assert ("*(float4 *)(A_shared + " in program.source) == in_squares(tile, 4)
        assert kernel.threads == tile.threads and 0.98 * most < kernel.shared_bytes <= most


@pytest.mark.parametrize("shared", [48 * 1024, SHARED])
@pytest.mark.parametrize("size", [(1, 197, 3072, 768), (12, 197, 197, 64), (1, 1000, 1000, 1000), (1, 33, 4099, 37)])
def test_tiles_fit_and_differ(size: tuple[int, int, int, int], shared: int) -> None:
    product = Product(*size)
    tiles = best_tiles(product, shared)
    assert tiles and len(set(tiles)) == len(tiles)
    blocks = [(-(-product.rows // t.rows), -(-product.columns // t.columns), t.parts, t.sums) for t in tiles]
    assert all(blocks.count(b) <= VARIANTS for b in blocks)
    for tile in tiles:
        assert WORD * shared_words(tile, product) <= shared and resident(tile, product) >= 1
        assert tile.terms * tile.parts <= product.terms and tile.threads <= 1024
    costs = [cycles(tile, product) for tile in tiles]
    assert costs == sorted(costs)


def test_what_costs_more() -> None:
    """Waste, a block more than there are multiprocessors, tiles that are turned, and blocks without room."""
    product, tile = Product(1, 128, 8192, 1024), BlockTile(128, 64, (8, 8), 16, 2)
    cost = cycles(tile, product)
    assert cycles(tile, Product(1, 129, 8192, 1024)) > 1.5 * cost
    assert cycles(tile, Product(1, 128, 8192, 1024, turned=(True, True))) > cost
    assert cycles(tile, Product(1, 128, 8192, 1024, lanes=(1, 1))) > cost
    assert cycles(BlockTile(256, 256, (8, 8), 16, 2), product) == float("inf")


def test_products_for_tensor_cores_have_none() -> None:
    for dtype, target in (("float16", "cuda"), ("float32", "cuda -precision=tf32")):
        dag = ComputeDAG(product_of(256, 256, 256, dtype))
        assert not extra_sketches(dag, target, HardwareParams(target=target), rules=["sliced_tiles"])
