"""Plans that are read: from JSON, and whether no step reads what nothing wrote, or overwrites what is still read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from te_lite.errors import require
from te_lite.expr.expr import DTYPES

from ..errors import GraphError
from ..values.checks import network_limit, require_tensor, tensor_limit
from ..values.json_values import items, record, size, sizes, text
from .network_plan import ExecutionPlan, Step, Storage, TensorPlace

Span: TypeAlias = tuple[int, int]


def plan_from_json(data: Any) -> ExecutionPlan:
    """Read what `ExecutionPlan.to_json` gave.

    Raises GraphError for anything else, for more memory than `sizes.network_limit`, and where a step would read what
    nothing wrote, or overwrite what is still read.
    """
    facts = record(data, ("storages", "steps", "inputs", "params", "outputs", "arena_bytes"), "plan")
    storages = [record(s, ("kind", "nbytes", "offset"), "storage") for s in items(facts["storages"], "storages")]
    steps = [record(s, ("kernel", "storages", "written"), "step") for s in items(facts["steps"], "steps")]
    plan = ExecutionPlan(
        tuple([_storage(s) for s in storages]),
        tuple([Step("" if s["kernel"] == "" else text(s["kernel"], "kernel"), sizes(s["storages"], "storages"),
                    sizes(s["written"], "written"), sizes(s.get("where", ()), "where"),
                    sizes(s.get("unless", ()), "unless"), size(s.get("back", 0), "back")) for s in steps]),
        _places(facts["inputs"]), _places(facts["params"]), _places(facts["outputs"]),
        size(facts["arena_bytes"], "arena_bytes"),
    )  # fmt: skip
    total = plan.arena_bytes + sum(s.nbytes for s in plan.storages[: plan.externals])
    law = f"all its memory may have {network_limit()} bytes, {network_limit() // tensor_limit()} ANSOR_TENSOR_BYTES"
    require(total <= network_limit(), GraphError, "plan", law, bytes=total)
    require_order(plan)
    return plan


def _storage(s: Mapping[str, Any]) -> Storage:
    of = None if s.get("of") is None else size(s["of"], "of")
    return Storage(text(s["kind"], "kind"), size(s["nbytes"], "nbytes"), size(s["offset"], "offset"), of)


def _places(value: Any) -> tuple[TensorPlace, ...]:
    found = [record(t, ("name", "shape", "dtype", "storage"), "tensor") for t in items(value, "tensors")]
    for t in found:
        require(t["dtype"] in DTYPES, GraphError, "plan", f"dtypes are {', '.join(DTYPES)}", dtype=t["dtype"])
        require_tensor(sizes(t["shape"], "shape"), t["dtype"], "plan")
    names = [text(t["name"], "name") for t in found]
    require(len(set(names)) == len(names), GraphError, "plan", "names must differ", names=names)
    return tuple([TensorPlace(name, sizes(t["shape"], "shape"), t["dtype"], size(t["storage"], "storage"))
                  for name, t in zip(names, found, strict=True)])  # fmt: skip


def require_order(plan: ExecutionPlan) -> None:
    """Raises GraphError.  A storage of the arena lives from the step that writes it to the last that uses it.

    One whose parts are written one by one lives from the first of these on, and what is read of it was written.  What
    is used in steps that run again, and was before them, lives until the last of these.
    """
    whole = [s if found.of is None else found.of for s, found in enumerate(plan.storages)]
    uses = [(whole[s], k) for k, step in enumerate(plan.steps) for s in step.used]
    first, last = dict(reversed(uses)), dict(uses)
    for k, step in enumerate(plan.steps):
        if step.back:
            last |= {s: max(k, end) for s, end in last.items() if first[s] < k - step.back <= end}
            turn, on, off = plan.steps[k - step.back : k], {*step.where}, {*step.unless}
            ends = [s for s in turn if on & {*s.written} and on >= {*s.where} and off >= {*s.unless}]
            require(ends, GraphError, "plan", f"step {k} goes back for ever, or no step always writes how long")
    alive: set[int] = set()
    written: dict[int, list[Span]] = {}
    for k, step in enumerate(plan.steps):
        inside = {whole[s] for s in step.used if plan.storages[whole[s]].kind == "arena"}
        begun = {whole[s] for s in step.written} & inside - alive
        read = [s for s in set(step.used) - set(step.written) if whole[s] in inside]
        unwritten = [s for s in read if not _covers(written.get(whole[s], []), _span(plan, s))]
        law = f"step {k} reads memory that no step before it wrote"
        require(not unwritten, GraphError, "plan", law, storages=sorted(unwritten))
        kept = [s for s in step.written if plan.storages[whole[s]].kind == "param"]
        require(not kept, GraphError, "plan", f"step {k} writes to a parameter", storages=kept)
        alive |= begun
        shared = [(a, b) for a in begun for b in alive if a != b and _meet(plan.storages[a], plan.storages[b])]
        require(not shared, GraphError, "plan", f"step {k} overwrites what is still needed", storages=shared)
        for s in step.written:
            written[whole[s]] = _joined(written.get(whole[s], []), _span(plan, s))
        ended = {s for s in (alive if step.back else inside) if last[s] <= k}
        alive -= ended
        for s in ended:
            written.pop(s, None)


def _span(plan: ExecutionPlan, storage: int) -> Span:
    """The bytes of a storage in the whole that it is, or is a part of."""
    found = plan.storages[storage]
    start = 0 if found.of is None else found.offset
    return start, start + found.nbytes


def _covers(spans: Sequence[Span], wanted: Span) -> bool:
    """Whether bytes lie within one of the spans, which do not touch each other."""
    return wanted[0] >= wanted[1] or any(start <= wanted[0] and wanted[1] <= end for start, end in spans)


def _joined(spans: Sequence[Span], new: Span) -> list[Span]:
    """The spans with one more; those that touch it become one with it."""
    touching = [span for span in spans if span[0] <= new[1] and new[0] <= span[1]]
    start, end = (choose([new[k], *[span[k] for span in touching]]) for k, choose in ((0, min), (1, max)))
    return [*[span for span in spans if span not in touching], (start, end)]


def _meet(a: Storage, b: Storage) -> bool:
    return a.offset < b.offset + b.nbytes and b.offset < a.offset + a.nbytes
