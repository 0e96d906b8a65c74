"""Rule 4 of the paper: asked about single stages, then among the rules of `mini_ansor`, on four computations."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import mini_ansor.sketch as sketch
from mini_ansor.program import GPU, Machine, State, StepError, initial
from mini_ansor.steps import cache_write

from ..core.mini import WORKLOADS, product_and_relu, put_in
from ..core.verdict import Wrong, function, need

HINT = """Two levels of tiles of a stage with two axes are four loops, 0 to 3, so level n ends with loop number
n * len(splits) - 1. The levels are (1, 2) on a CPU and (3,) on a GPU. `following` has pairs: the fused state after
`compute_at`, and k - 1."""

Rule = Callable[[Machine, State, int], Any]


def check(answer: ModuleType) -> None:
    """First where it applies, then what it makes of one stage, then whole sketches."""
    function(answer, "tile_with_fusion")
    rule: Rule = vars(answer)["tile_with_fusion"]
    for machine in (Machine(), GPU):
        alone(rule, machine)
        for name, make in WORKLOADS.items():
            whole(rule, machine, name, make())


def alone(rule: Rule, machine: Machine) -> None:
    """The product of a product and a relu, and a cache of the product."""
    state, where = initial(product_and_relu(64, 48, 32)), "a GPU" if machine.is_gpu else "a CPU"
    layer, plain = initial(WORKLOADS["the convolution layer"]()), initial(state.args[:2] + (state.ops[2],))
    bias = next(k for k, op in enumerate(layer.ops) if op.name == "T_add")
    leaves_alone(rule, machine, plain, 2, "a product that is the output: there is no consumer to fuse it with")
    leaves_alone(rule, machine, layer, bias, "the sum of a bias: it reuses nothing")
    got, want = rule(machine, state, 2), sketch.tile_with_fusion(machine, state, 2)
    assert want is not None
    need(got is not None, "the product is tiled and the relu reads it point by point, but the rule gives None")
    same_ways(f"the product and its relu on {where}", got, want)
    need(got.rest or not want.rest, "without `rest` there is no sketch of the product on its own, which a CPU may want")
    need(want.rest or not got.rest, f"on {where} rules behind this one may not look at a stage that is fused")
    cached = cache_write(plain, 2, "local")
    got, want = rule(machine, cached, 2), sketch.tile_with_fusion(machine, cached, 2)
    assert want is not None
    need(got is not None, "the cache of a product is tiled and copied point by point, but the rule gives None")
    same_ways(f"the cache of a product on {where}", got, want)
    need(not got.rest, "a cache that is not fused is of no use, so `rest` must not let other rules make one")


def leaves_alone(rule: Rule, machine: Machine, state: State, k: int, what: str) -> None:
    """Raise Wrong when the rule applies to a stage, or fails as it tries."""
    try:
        got = rule(machine, state, k)
    except (StepError, TypeError, IndexError) as error:
        raise Wrong(f"the rule does not apply to {what}, and fails: {error}") from error
    need(got is None, f"the rule does not apply to {what}")


def same_ways(case: str, got: Any, want: sketch.Applied) -> None:
    """The states of an answer, one by one."""
    need(isinstance(got, sketch.Applied), f"{case}: the rule gives `Applied(following, rest=...)`")
    need(... not in got.following, "`tile_with_fusion` still has its hole: replace all `...`")
    count, most = len(got.following), len(want.following)
    need(count == most, f"{case}: the number of fused states is {most}, yours {count}")
    for (a, following), (b, k) in zip(got.following, want.following, strict=True):
        need(following == k, f"{case}: the walk goes on with stage {k}, yours with {following}")
        stage = k + 1
        need(a.stages[stage].at is not None, f"{case}: the stage is not computed inside of its consumer: compute_at")
        place, right = loop(a, stage), loop(b, stage)
        need(place == right, f"{case}: it is computed in loop {right} of its consumer, in yours in {place}")
        need(str(a) == str(b), f"{case}: your tiles of the consumer are\n{a}\ninstead of\n{b}")


def loop(state: State, k: int) -> str:
    """The name of the loop that stage k is computed in."""
    at = state.stages[k].at
    return state.stages[at[0]].iters[at[1]].name if at is not None else ""


def whole(rule: Rule, machine: Machine, name: str, args: Any) -> None:
    """All sketches of a computation, with the learner's rule in place of the original."""
    want = [str(s) for s in sketch.generate_sketches(args, machine)]
    rules = "GPU_RULES" if machine.is_gpu else "CPU_RULES"
    own = tuple(rule if r is sketch.tile_with_fusion else r for r in getattr(sketch, rules))
    try:
        with put_in(sketch, rules, own):
            got = [str(s) for s in sketch.generate_sketches(args, machine)]
    except StepError as error:
        need(False, f"{name}: a step of the rule does not fit: {error}")
    need(len(got) == len(want), f"{name}: {len(want)} sketches on {machine.target}, with your rule {len(got)}")
    for a, b in zip(got, want, strict=True):
        need(a == b, f"{name}: a sketch is\n{b}\nwith your rule\n{a}")
