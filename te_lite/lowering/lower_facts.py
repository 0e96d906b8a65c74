"""What lowering knows of a program before it builds nests: variables, values, buffers, ranges."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..bounds.bounds import Bounds
from ..bounds.loop_scope import BLOCKS, THREADS, enclosing_loops, kernel_of
from ..bounds.reads import expanded_bodies, reads_all, reads_by_producer
from ..computation.access import CONST_INDICES
from ..computation.tensor import Tensor
from ..errors import LowerError, require
from ..expr.expr import Expr, Var, as_expr, binary, cast
from ..expr.lanes import row_major
from ..expr.simplify import Simplifier
from ..expr.storage import stored_strides
from ..expr.visit import is_data
from ..extensions import required_part
from ..later import when_called
from ..loops.stmt import Buffer
from ..schedule.loop_value import all_values
from ..schedule.region import ZERO, DivAtom, Linear, Region
from ..schedule.state import ATTACHED, INLINED, ROOT
from .layout import Layout

last_reads: Callable[[Any], dict[Tensor, int]] = when_called("te_lite.lowering.scan_storage", "last_reads")
given_up: Callable[[Any, int, Buffer], Buffer] = when_called("te_lite.lowering.scan_storage", "given_up")
without_zero_terms: Callable[[Expr], Expr] = when_called("te_lite.lowering.zero_terms", "without_zero_terms")


class Facts:
    """The bounds of a state turned into variables and buffers, over the argument tensors `args`."""

    def __init__(self, bounds: Bounds, args: tuple[Tensor, ...]) -> None:
        self.bounds = bounds
        self.state = bounds.state
        self.stages = bounds.state.stages
        self.args = args
        self.simplifier = Simplifier()
        self.roots = [kernel_of(self.state, k) for k in range(len(self.stages))]
        self.thread_extents = self._thread_extents()
        self.thread_vars = {(root, tag): Var(tag) for root, tags in self.thread_extents.items() for tag in tags}
        for (root, tag), var in self.thread_vars.items():
            self.simplifier.bind(var, 0, self.thread_extents[root][tag] - 1)
        self.vars = [self._loop_vars(k) for k in range(len(self.stages))]
        self.values = [all_values(s, v) for s, v in zip(self.stages, self.vars, strict=True)]
        self.inlined = frozenset(k for k, s in enumerate(self.stages) if s.where == INLINED)
        expanded = expanded_bodies(self.state.ops, self.inlined)
        self.bodies = [
            tuple(map(without_zero_terms, bodies)) if CONST_INDICES in op.attrs else bodies
            for op, bodies in zip(self.state.ops, expanded, strict=True)
        ]
        self.scans = any(stage.op.scans for stage in self.stages)
        self.last_read = last_reads(self) if self.scans else {}
        self.index_of = {op.key: k for k, op in enumerate(self.state.ops)}
        self.arg_buffers = {t: Buffer(t.name, t.dtype, t.op.shape) for t in args}
        self.buffers: dict[tuple[int, int], Buffer] = {}
        self.layouts: dict[int, Layout] = {}
        """Of stages that are not stored row by row; arguments are."""
        self.beside: dict[int, tuple[Buffer, ...]] = {}
        """What is kept of a stage besides its outputs."""
        self.minima = [[self.linear_expr(r.min) for r in self.regions(k)] for k in range(len(self.stages))]
        for k in range(len(self.stages)):
            self._find_layout(k)
            self._check_storage(k)
            self._make_buffers(k)

    # ------------------------------------------------------------------------------------------- facts

    def regions(self, k: int) -> tuple[Region, ...]:
        return self.bounds.regions[k]

    def _thread_extents(self) -> dict[int, dict[str, int]]:
        """For each root stage the launch extent of every block and thread axis used in its nest."""
        out: dict[int, dict[str, int]] = {}
        for k, stage in enumerate(self.stages):
            for it in stage.iters:
                if it.annotation in BLOCKS or it.annotation in THREADS:
                    tags = out.setdefault(self.roots[k], {})
                    tags[it.annotation] = max(tags.get(it.annotation, 1), it.length)
        return out

    def _loop_vars(self, k: int) -> dict[int, Expr]:
        stage = self.stages[k]
        out: dict[int, Expr] = {}
        for it in () if stage.where == INLINED else stage.iters:
            if it.annotation in BLOCKS or it.annotation in THREADS:
                out[it.uid] = self.thread_vars[self.roots[k], it.annotation]
            elif it.extent == 1 and it.annotation != "tensorize":
                out[it.uid] = as_expr(0)
            else:
                out[it.uid] = self.new_var(it.name, it.length)
        return out

    def new_var(self, name: str, extent: int) -> Var:
        """A loop variable over `0 .. extent-1`."""
        var = Var("_".join(filter(None, name.replace("@", ".").split("."))))
        self.simplifier.bind(var, 0, extent - 1)
        return var

    def linear_expr(self, low: Linear) -> Expr:
        """The start of a region in terms of the loops around it."""
        total = as_expr(low.const)
        for atom, c in low.terms.items():
            if isinstance(atom, DivAtom):
                value = binary("%" if atom.mod else "//", self.linear_expr(atom.base), atom.divisor)
            else:
                value = self.values[atom.stage][atom.uid]
            total = binary("+", total, binary("*", value, c))
        return self.simplifier.simplify(total)

    def kernel_tags(self, k: int) -> dict[str, int]:
        return self.thread_extents.get(self.roots[k], {})

    # ----------------------------------------------------------------------------------------- buffers

    def _make_buffers(self, k: int) -> None:
        stage = self.stages[k]
        if any(stage.op.output(index) in self.arg_buffers for index in range(stage.op.num_outputs)):
            law = "an argument must be computed whole, not inlined or in parts"
            require(stage.is_placeholder or self._computed_whole(k), LowerError, stage.op.name, law)
            lanes = {self.stages[j].vars[uid].annotation for j, uid in enclosing_loops(self.stages, k)}
            law = "lanes must not compute a reduction into an argument: all would add to what they share"
            ok = not stage.op.reduce_axis or lanes.isdisjoint(("vectorize", "vthread"))
            require(ok, LowerError, stage.op.name, law)
        if stage.where == INLINED:
            return
        for index, tensor in enumerate(map(stage.op.output, range(stage.op.num_outputs))):
            if not stage.op.scans or tensor in self.arg_buffers or tensor in self.last_read:
                self.buffers[k, index] = self.arg_buffers.get(tensor) or self._own_buffer(k, tensor)

    def _own_buffer(self, k: int, tensor: Tensor) -> Buffer:
        """Storage for the region of an output of stage k that is no argument."""
        stage = self.stages[k]
        require(not stage.is_placeholder, LowerError, tensor.name, "every input must be among the arguments")
        law = "every output must be among the arguments"
        require(not self.state.access.is_output(k), LowerError, tensor.name, law)
        shape = tuple([int(r.extent) for r in self.regions(k)[: len(stage.op.axis)]])
        stored = self.layouts[k].shape(shape) if k in self.layouts else None
        if stored is not None:
            return Buffer(tensor.name, tensor.dtype, stored, self.bounds.scopes[k])
        row_major = stage.storage_align is None and stage.storage_order is None
        strides = None if row_major else tuple(stored_strides(shape, stage.storage_align, stage.storage_order))
        made = Buffer(tensor.name, tensor.dtype, shape, self.bounds.scopes[k], strides)
        return given_up(self, k, made) if self.scans else made

    def _computed_whole(self, k: int) -> bool:
        """Every point of stage k is computed: at root, or because a consumer that is computed whole reads it all."""
        stage, shape = self.stages[k], self.stages[k].op.shape
        if stage.where != ATTACHED:
            whole = [r.extent == d and r.min == ZERO for r, d in zip(self.regions(k), shape, strict=False)]
            return stage.where == ROOT and all(whole)
        return any(
            reads_all(read, shape, self.stages[read.reader].op.shape) and self._computed_whole(read.reader)
            for read in reads_by_producer(self.state.ops, self.inlined)[k]
        )

    def _find_layout(self, k: int) -> None:
        """How stage k is stored where a step, or its scope, says so."""
        for layout in [ask.layout for ask in self.stages[k].asks if ask.layout]:
            self.layouts[k] = when_called(*layout.split(":"))(self, k)
        if self.bounds.storage(k) == "fragment":
            self.layouts[k] = required_part("fragment_layout")(self, k)

    def _check_storage(self, k: int) -> None:
        """Shared and private storage belong to one kernel."""
        stage, scope = self.stages[k], self.bounds.scopes[k]
        outside = self.bounds.storage(k) == "shared" and not self.kernel_tags(k)
        private = stage.attach is None and scope != "global" and bool(self.thread_extents)
        ok = stage.where == INLINED or not (outside or private)
        require(ok, LowerError, stage.op.name, f"{scope} storage must be computed inside a kernel")

    def own_buffers(self, k: int) -> list[Buffer]:
        """The storage of stage k that is not an argument."""
        own = [b for (s, _), b in self.buffers.items() if s == k and b not in self.arg_buffers.values()]
        return [*own, *self.beside.get(k, ())]

    def flat_index(self, k: int, output: int, indices: Sequence[Expr], local: bool = False) -> Expr:
        """The flat index of a point; `local` when the indices count from the start of the region already.

        What is read from memory is data, so it counts in 64 bits where the buffer is too large for 32 (see `width.py`).
        """
        buffer = self.buffers[k, output]
        whole = buffer.scope == "global" and self.stages[k].op.output(output) in self.arg_buffers
        if whole and local:
            indices = [binary("+", e, least) for e, least in zip(indices, self.minima[k], strict=False)]
        elif not whole and not local:
            indices = self.from_start(k, indices)
        if k in self.layouts and not whole:
            return self.layouts[k].place(output, indices)
        return row_by_row(buffer, indices)

    def from_start(self, k: int, indices: Sequence[Expr]) -> list[Expr]:
        """Indices of stage k counted from the start of its region."""
        return [binary("-", e, least) for e, least in zip(indices, self.minima[k], strict=False)]


def row_by_row(buffer: Buffer, indices: Sequence[Expr]) -> Expr:
    """The flat index of an element, by the strides of its buffer."""
    total: Expr = as_expr(0)
    strides = buffer.strides or row_major(buffer.shape)
    large = buffer.size > 2**31 - 1
    for e, stride in zip(indices, strides, strict=True):
        if large and is_data(e):
            e = cast("int64", e)
        total = binary("+", total, binary("*", e, stride))
    return total
