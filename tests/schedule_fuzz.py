"""Random valid schedules: lists of steps of every kind that a program may be given.

Steps that do not fit are refused by the language and skipped; a schedule without a loop nest (a consumer outside
its producer's attach point, say) is drawn again.  What is left must compute the workload exactly.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from te_lite import ComputeDAG, LoweredFunc, LowerError, ScheduleError, State, lower
from te_lite.loops.stmt import Alloc, For, If, Seq, Stmt
from te_lite.schedule.loop_steps import Annotate, Fuse, Pragma, Reorder, Split
from te_lite.schedule.place_steps import ComputeAt, ComputeInline, ComputeRoot
from te_lite.schedule.replay import apply
from te_lite.schedule.stage_steps import CacheRead, CacheWrite, RFactor
from te_lite.schedule.state import INLINED, REDUCE, ROOT, SPATIAL
from te_lite.schedule.step import Step, from_json
from te_lite.schedule.storage_steps import StorageAlign

MAX_THREADS = 16
MAX_ITERATIONS = 400_000
"""Of the statements of a program, or eight times as many as it has without a schedule, if that is more."""


def iterations(stmt: Stmt) -> int:
    """How often the statements of `stmt` run, in all; splits that do not divide, one inside another, make millions."""
    match stmt:
        case For(extent=extent, body=body):
            return extent * iterations(body)
        case Seq(stmts=parts):
            return sum(iterations(part) for part in parts)
        case If(then=then):
            return iterations(then)
        case Alloc(body=body):
            return iterations(body)
    return 1


class Fuzzer:
    """Draws schedules of one computation from `rng`; `gpu` binds loops to blocks and threads."""

    def __init__(self, dag: ComputeDAG, rng: np.random.Generator, gpu: bool) -> None:
        self.dag = dag
        self.rng = rng
        self.gpu = gpu
        self.state: State = dag.init_state
        self.most_iterations = max(MAX_ITERATIONS, 8 * iterations(lower(dag.init_state).body))

    def draw(self, attempts: int = 1000) -> tuple[State, LoweredFunc]:
        """A random schedule that lowers, and its program; the last refusal when none of `attempts` does."""
        refusal: LowerError | None = None
        for _ in range(attempts):
            self.state = self.dag.init_state
            self._structure()
            for k in reversed(range(len(self.state.stages))):
                self._loops(k)
            self._attach()
            self._bind() if self.gpu else self._annotate_cpu()
            self._unroll()
            self._fetch_ahead()
            try:
                func = lower(self.state)
            except LowerError as error:
                refusal = error
            else:
                if iterations(func.body) <= self.most_iterations:
                    return self.state, func
        raise refusal or LowerError(f"{self.dag!r}: no attempt was made")

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def pick(self, items: Sequence[object]) -> object:
        return items[int(self.rng.integers(len(items)))]

    def attempt(self, step: Step) -> bool:
        try:
            self.state = apply(self.state, step)
        except ScheduleError:
            return False
        return True

    def computed(self) -> list[int]:
        return [k for k, s in enumerate(self.state.stages) if not s.is_placeholder and s.where != INLINED]

    # ------------------------------------------------------------------------------------------ stages

    def _structure(self) -> None:
        for _ in range(int(self.rng.integers(4))):
            k = int(self.rng.integers(len(self.state.stages)))
            stage = self.state.stages[k]
            scope = "local" if not self.gpu or self.chance(0.3) else "shared"
            readers = tuple(self.state.access.read_by[k])
            if readers and self.chance(0.5):
                self.attempt(CacheRead(k, scope, readers if self.chance(0.7) else readers[:1]))
            elif not stage.is_placeholder and self.chance(0.6):
                self.attempt(CacheWrite(k, "local"))
            elif not stage.is_placeholder and stage.op.reduce_axis:
                self._rfactor(k)
        if self.gpu and self.chance(0.2):
            self._cache_for_reduction()
        for k in range(len(self.state.stages)):
            if self.chance(0.4):
                self.attempt(ComputeInline(k))

    def _cache_for_reduction(self) -> None:
        """Shared copies of what a reduction reads."""
        reductions = [k for k in self.computed() if self.state.stages[k].op.reduce_axis]
        if reductions:
            reader = int(self.pick(reductions))  # type: ignore[call-overload]
            for k in sorted(self.state.access.read_from[reader], reverse=True):
                reader += self.attempt(CacheRead(k, "shared", (reader,)))

    def _rfactor(self, k: int) -> None:
        reduces = [p for p, it in enumerate(self.state.stages[k].iters) if it.kind == REDUCE]
        if len(reduces) > 1 and self.chance(0.5):
            self.attempt(Fuse(k, tuple(reduces)))
            reduces = [reduces[0]]
        extent = self.state.stages[k].iters[reduces[0]].extent
        self.attempt(Split(k, reduces[0], 0, (self._factor(extent),), self.chance(0.7)))
        rank = len(self.state.stages[k].op.axis)
        self.attempt(RFactor(k, reduces[0] + int(self.chance(0.5)), int(self.rng.integers(rank + 1))))

    def _factor(self, extent: object) -> int:
        n = extent if isinstance(extent, int) else 6
        if self.chance(0.6):
            return int(self.pick([d for d in range(1, n + 1) if n % d == 0]))  # type: ignore[call-overload]
        return int(self.rng.integers(1, n + 2))

    def _attach(self) -> None:
        for k in reversed(self.computed()):
            readers = [r for r in self.state.access.read_by[k] if self.state.stages[r].where != INLINED]
            must = self.state.stages[k].op.name.endswith((".shared", ".local"))
            if len(readers) == 1 and self.chance(0.95 if must else 0.5):
                target = readers[0]
                self.attempt(ComputeAt(k, target, int(self.rng.integers(len(self.state.stages[target].leaf) or 1))))
                if self.chance(0.05):
                    self.attempt(ComputeRoot(k))

    # ------------------------------------------------------------------------------------------- loops

    def _loops(self, k: int) -> None:
        if self.state.stages[k].is_placeholder or self.state.stages[k].where == INLINED:
            return
        if self.chance(0.25) and self.state.stages[k].op.axis:
            axis = int(self.rng.integers(len(self.state.stages[k].op.axis)))
            self.attempt(StorageAlign(k, axis, int(self.rng.integers(2, 9)), int(self.rng.integers(3))))
        for _ in range(int(self.rng.integers(5))):
            n = len(self.state.stages[k].leaf)
            if n == 0:
                return
            match int(self.rng.integers(4)):
                case 0 | 1:
                    p = int(self.rng.integers(n))
                    extent = self.state.stages[k].iters[p].extent
                    count = int(self.rng.integers(1, 4))
                    lengths = tuple([self._factor(extent) for _ in range(count)])
                    self.attempt(Split(k, p, 0, lengths, self.chance(0.7)))
                case 2 if n > 1:
                    p = int(self.rng.integers(n - 1))
                    kinds = {it.kind for it in self.state.stages[k].iters[p : p + 2]}
                    if len(kinds) == 1:
                        self.attempt(Fuse(k, (p, p + 1)))
                case _:
                    self.attempt(Reorder(k, tuple(int(x) for x in self.rng.permutation(n))))

    def _spatial_front(self, k: int) -> list[int]:
        """The positions of the outermost loops that are spatial and free."""
        out = []
        for p, it in enumerate(self.state.stages[k].iters):
            if it.kind != SPATIAL or it.annotation != "none":
                break
            out.append(p)
            if self.state.attached_to(k, it.uid):
                break
        return out

    def _annotate_cpu(self) -> None:
        for k in self.computed():
            stage = self.state.stages[k]
            if stage.where == ROOT and self.chance(0.5):
                front = self._spatial_front(k)
                if front:
                    count = int(self.rng.integers(1, len(front) + 1))
                    if count > 1:
                        self.attempt(Fuse(k, tuple(front[:count])))
                    self.attempt(Annotate(k, 0, "parallel"))
            stage = self.state.stages[k]
            spatial = [p for p, it in enumerate(stage.iters) if it.kind == SPATIAL]
            if spatial and self.chance(0.5):
                p = spatial[-1] if self.chance(0.8) else int(self.pick(spatial))  # type: ignore[call-overload]
                self.attempt(Annotate(k, p, "vectorize"))

    def _unroll(self) -> None:
        for k in self.computed():
            stage = self.state.stages[k]
            if stage.leaf and self.chance(0.3):
                self.attempt(Pragma(k, 0, f"auto_unroll_max_step${self.pick([0, 4, 16, 64])}"))
            if stage.leaf and self.chance(0.15):
                self.attempt(Annotate(k, int(self.rng.integers(len(stage.leaf))), "unroll"))

    def _fetch_ahead(self) -> None:
        """Fetch attached shared copies, moved to a reduction loop for it, one to three iterations ahead."""
        tiles = 2 + len(self.state.steps) % 3
        for k, stage in enumerate(self.state.stages):
            readers = list(self.state.access.read_by[k])
            shared = stage.attach is not None and stage.op.scope == "shared"
            if not self.gpu or not shared or len(readers) != 1 or self.chance(0.4):
                continue
            loops = self.state.stages[readers[0]].iters
            in_turn = [p for p, it in enumerate(loops) if it.kind == REDUCE and it.annotation in ("none", "unroll")]
            if in_turn and self.attempt(ComputeAt(k, readers[0], int(self.pick(in_turn)))):  # type: ignore[call-overload]
                self.attempt(from_json(["DBF", k] if tiles == 2 else ["PIP", k, tiles]))

    # ----------------------------------------------------------------------------------------- threads

    def _bind(self) -> None:
        for k in reversed(self.computed()):
            stage = self.state.stages[k]
            if stage.where == ROOT:
                self._bind_root(k)
            elif self.chance(0.7):
                self._bind_cooperative(k)

    def _bind_root(self, k: int) -> None:
        if self.state.stages[k].op.reduce_axis and self.chance(0.3):
            self._bind_reduction(k)
        tags = ["blockIdx.x", "blockIdx.y", "vthread", "threadIdx.y", "threadIdx.x"]
        wanted = [t for t in tags if self.chance(0.35 if t.endswith("y") else 0.7)]
        for tag in wanted:
            front = [p for p in range(len(self.state.stages[k].leaf)) if self._bindable(k, p, tag)]
            if front:
                self.attempt(Annotate(k, front[0], tag))

    def _bindable(self, k: int, p: int, tag: str) -> bool:
        """Loop p is spatial, free, and all loops outside it are bound."""
        iters = self.state.stages[k].iters
        it = iters[p]
        small = it.extent is None or it.extent <= (MAX_THREADS if "thread" in tag else 64)
        outside = all(x.annotation != "none" for x in iters[:p])
        return it.kind == SPATIAL and it.annotation == "none" and outside and bool(small)

    def _bind_reduction(self, k: int) -> None:
        reduces = [p for p, it in enumerate(self.state.stages[k].iters) if it.kind == REDUCE]
        if any(it.kind == SPATIAL for it in self.state.stages[k].iters[reduces[0] :]):
            spatial = [p for p, it in enumerate(self.state.stages[k].iters) if it.kind == SPATIAL]
            self.attempt(Reorder(k, tuple(spatial + reduces)))
            reduces = list(range(len(spatial), len(spatial) + len(reduces)))
        p = int(self.pick(reduces))  # type: ignore[call-overload]
        self.attempt(Annotate(k, p, "threadIdx.x"))

    def _bind_cooperative(self, k: int) -> None:
        """Spread the loops of an attached stage over the threads."""
        stage = self.state.stages[k]
        spatial = [p for p, it in enumerate(stage.iters) if it.kind == SPATIAL]
        if not stage.op.name.endswith(".shared") or spatial != list(range(len(stage.leaf))) or not spatial:
            return
        if self.attempt(Fuse(k, tuple(spatial))):
            self.attempt(Split(k, 0, 0, (int(self.pick([2, 4, 5, 8])),), True))  # type: ignore[call-overload]
            if self.chance(0.3):
                self.attempt(Split(k, 1, 0, (2,), True))
                self.attempt(Annotate(k, 2, "vectorize"))
            self.attempt(Annotate(k, 1, "threadIdx.x"))
