"""Grids that follow sizes: expressions that are found in kernels, and their values at a launch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

from ansor.core.device.exported_program import Argument
from codegen_cuda.program.cuda_program import BLOCK_TAGS, CudaKernel, CudaProgram, KernelNest
from te_lite.errors import TeError
from te_lite.expr.expr import Compare, Const, Expr, Var, as_expr
from te_lite.expr.simplify import Simplifier
from te_lite.expr.visit import is_size, substitute
from te_lite.loops.stmt import If

from .sizes import Sizes, extents_at, sizes_of


def open_grid(nest: KernelNest) -> KernelNest:
    """A kernel with the ends of its grid, `if blockIdx.x < (n + 15)//16` around all that threads do taken away."""
    ends: dict[Var, Expr] = {}
    blocks = [nest.loops[tag].var if tag in nest.loops else None for tag in BLOCK_TAGS]
    body = nest.body
    while isinstance(body, If) and _is_end(body.cond, {v for v in blocks if v is not None and v not in ends}):
        assert isinstance(body.cond, Compare) and isinstance(body.cond.a, Var)
        ends[body.cond.a], body = body.cond.b, body.then
    grid = [as_expr(n) if v is None else ends.get(v, as_expr(n)) for v, n in zip(blocks, nest.grid, strict=True)]
    return KernelNest(nest.loops, body, tuple(grid))


def _is_end(cond: Expr, blocks: set[Var]) -> bool:
    match cond:
        case Compare(op="<", a=Var() as a, b=end):
            return a in blocks and is_size(end)
    return False


def grid_at(kernel: CudaKernel, sizes: Sizes) -> tuple[int, int, int]:
    """The blocks along each axis at some sizes: no more than at the greatest ones, and maybe none."""
    x, y, z = [max(0, min(_at(end, sizes), most)) for end, most in zip(kernel.ends, kernel.grid, strict=True)]
    return x, y, z


def _at(end: Expr, sizes: Sizes) -> int:
    number = Simplifier().simplify(substitute(end, {v: Const(n) for v, n in sizes.items()}))
    assert isinstance(number, Const)
    return int(number.value)


def closed_program(program: CudaProgram, sizes: Sizes) -> CudaProgram:
    """The program at some sizes, which its kernels still take; those without a block are left out."""
    kernels = [replace(k, grid=grid_at(k, sizes), ends=()) for k in program.kernels]
    args = [replace(b, shape=extents_at(b.shape, sizes)) for b in program.args]
    return replace(program, kernels=tuple([k for k in kernels if prod(k.grid)]), args=tuple(args), sizes=())


def at_sizes(program: CudaProgram, arrays: Sequence[Any], error: type[TeError]) -> tuple[CudaProgram, tuple[int, ...]]:
    """The program at the sizes of arrays, and these, as its kernels take them.  Raises `error`; see `sizes_of`."""
    arguments = [Argument(b.name, b.dtype, b.shape, True) for b in program.args]
    sizes = sizes_of(program.name, arguments, arrays, error)
    return closed_program(program, sizes), tuple(sizes.values())
