"""From a state to a loop nest.

The order of work: infer bounds; give every loop a variable and every stage a buffer; build the nest of each root
stage with the stages computed inside it (`lower_nest.py`), rewritten as kinds of steps ask for (`Ask`), private arrays
that threads share out cut to the part of each (`thread_parts.py`); wrap kernels in their block and thread loops; then
the passes: virtual threads are sunk below barriers (`vthread.py`), loops are unrolled (`unroll.py`), in kernels without
the guards that most iterations do not need (`unroll.py`), barriers are put where threads meet in shared memory
(`sync.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..bounds.bounds import infer_bounds
from ..bounds.loop_scope import BLOCKS
from ..computation.tensor import ComputeOp, Tensor
from ..errors import LowerError, require
from ..expr.expr import SizeVar
from ..extensions import required_part
from ..later import when_called
from ..loops.perfect_nest import perfect_nest
from ..loops.stmt import For, ForKind, LoweredFunc, Stmt, allocated, seq
from ..schedule.schedule import Schedule
from ..schedule.state import ROOT, State
from ..verify.verify import verify
from ..verify.verify_reads import require_reads_inside
from .lower_facts import Facts
from .lower_nest import nest_builder
from .thread_parts import keep_own_parts
from .unroll import unroll_loops, whole_iterations, whole_vectors
from .vthread import sink_lanes


def lower(
    schedule: State | Schedule,
    args: Sequence[Tensor] | None = None,
    name: str = "default_function",
    simple_mode: bool = True,
) -> LoweredFunc:
    """Lower a state (or schedule) to a program over the buffers of `args` (default: the tensors of its DAG).

    Printing the result shows the loop nest (`simple_mode` is accepted for TVM's sake).  Raises LowerError when the
    schedule has no loop nest, when an input or output of the computation is missing from `args` or listed twice, and
    when a computed argument is inlined or computed only in parts; UnsafeError when the verifier does not prove that the
    program stays in its buffers.
    """
    func = unverified(schedule, args, name)
    listed = _state(schedule).dag.tensors if args is None else args
    verify(func, [b for t, b in zip(listed, func.args, strict=True) if isinstance(t.op, ComputeOp)])
    return required_part("open_program")(func, listed) if func.sizes else func


def _state(schedule: State | Schedule) -> State:
    law = "a Schedule or a State is needed; tensors have one by te.create_schedule or te.ComputeDAG([...]).init_state"
    require(isinstance(schedule, State | Schedule), LowerError, "lower", law, got=schedule)
    return schedule if isinstance(schedule, State) else schedule.state


def _listed(args: object, name: str) -> tuple[Tensor, ...]:
    ok = isinstance(args, Sequence) and all([isinstance(t, Tensor) for t in args])
    require(ok, LowerError, name, "the arguments are a list of tensors", got=args)
    return tuple(args) if isinstance(args, Sequence) else ()


def unverified(
    schedule: State | Schedule, args: Sequence[Tensor] | None = None, name: str = "default_function"
) -> LoweredFunc:
    """As `lower`, without a look at the result: for those who look at it themselves."""
    state = _state(schedule)
    require_reads_inside(state.dag)
    listed = _listed(state.dag.tensors if args is None else args, name)
    twice = [t.name for t in listed if listed.count(t) > 1]
    require(not twice, LowerError, name, "an argument is listed twice", arguments=twice)
    facts = Facts(infer_bounds(state), listed)
    nests = nest_builder(facts)
    rewritings = _asked_for(facts)
    roots = [k for k, s in enumerate(facts.stages) if s.where == ROOT and not s.is_placeholder]
    built = [keep_own_parts(facts, k, _rewritten(rewritings, k, nests.stage_nest(k))) for k in roots]
    return as_function(facts, seq(*[_kernel(facts, k, nest) for k, nest in zip(roots, built, strict=True)]), name)


Rewriting = Callable[[int, Stmt], Stmt]


def _asked_for(facts: Facts) -> list[Rewriting]:
    """What steps ask of nests (`Ask`), each kind once."""
    asked = dict.fromkeys(ask.lowering for stage in facts.stages for ask in stage.asks if ask.lowering)
    return [when_called(*name.split(":"))(facts) for name in asked]


def _rewritten(rewritings: Sequence[Rewriting], k: int, nest: Stmt) -> Stmt:
    for rewriting in rewritings:
        nest = rewriting(k, nest)
    return nest


def loop_nest(state: State, args: Sequence[Tensor] | None = None) -> tuple[Facts, Stmt]:
    """The one nest of a state before any pass: virtual threads are loops around it, tensorized loops are marked.

    Targets that have a use of their own for those start here.  `args` as for `lower`.  Raises LowerError when the
    state has no loop nest, or several.
    """
    require_reads_inside(state.dag)
    facts = Facts(infer_bounds(state), tuple(state.dag.tensors if args is None else args))
    roots = [k for k, s in enumerate(facts.stages) if s.where == ROOT and not s.is_placeholder]
    names = [facts.stages[k].op.name for k in roots]
    require(len(roots) == 1, LowerError, "loop nest", "all stages must be computed inside one", roots=names)
    return facts, nest_builder(facts, tensorized=True).stage_nest(roots[0])


def as_function(facts: Facts, program: Stmt, name: str) -> LoweredFunc:
    """A program with the storage that its root stages share and its arguments."""
    roots = [k for k, s in enumerate(facts.stages) if s.where == ROOT]
    program = allocated(list(dict.fromkeys([b for k in roots for b in facts.own_buffers(k)])), program)
    sizes = tuple(dict.fromkeys([d for t in facts.args for d in t.op.extents if isinstance(d, SizeVar)]))
    return LoweredFunc(name, tuple([facts.arg_buffers[t] for t in facts.args]), program, sizes)


Pass = Callable[[Facts, int, Stmt], Stmt]


def sink_pass(facts: Facts, k: int, nest: Stmt) -> Stmt:
    """Virtual threads, and vectorized loops that are not innermost, go down to single statements."""
    return sink_lanes(nest, facts.simplifier)


def unroll_pass(facts: Facts, k: int, nest: Stmt) -> Stmt:
    """Loops are unrolled as their stages ask."""
    return unroll_loops(nest, facts.simplifier)


def turns_pass(facts: Facts, k: int, nest: Stmt) -> Stmt:
    """Iterations that are inside lose their guards: of unrolled loops in kernels, of loops around vectors elsewhere."""
    split = whole_iterations if k in facts.thread_extents else whole_vectors
    return split(nest, facts.simplifier)


def barrier_pass(facts: Facts, k: int, nest: Stmt) -> Stmt:
    """Kernels get barriers."""
    if k not in facts.thread_extents:
        return nest
    around, _ = perfect_nest(in_threads(facts, k, nest), lambda loop: loop is not nest)
    return insert_barriers(nest, [x for x in around if x.kind is ForKind.THREAD])


insert_barriers: Callable[[Stmt, Sequence[For]], Stmt] = when_called("te_lite.lowering.sync", "insert_barriers")
PASSES: tuple[Pass, ...] = (sink_pass, unroll_pass, turns_pass, barrier_pass)


def _kernel(facts: Facts, k: int, nest: Stmt) -> Stmt:
    """Run the passes on one root nest and wrap it in its block and thread loops."""
    for run in PASSES:
        nest = run(facts, k, nest)
    return in_threads(facts, k, nest)


def in_threads(facts: Facts, k: int, nest: Stmt) -> Stmt:
    """The nest of root stage k inside the block and thread loops of its kernel."""
    tags = facts.thread_extents.get(k, {})
    blocks = [tag for tag in sorted(tags, reverse=True) if tag in BLOCKS]
    threads = [tag for tag in sorted(tags, reverse=True) if tag not in BLOCKS]
    for kind, group in ((ForKind.THREAD, threads), (ForKind.BLOCK, blocks)):
        for tag in group:
            nest = For(facts.thread_vars[k, tag], tags[tag], kind, nest, tag)
    return nest
