"""Launch parameters of a program, as JSON beside its cubin."""

from __future__ import annotations

from typing import Any

from ansor.core.errors import GraphError
from ansor.core.values.json_values import items, record, size, sizes, text
from te_lite.errors import require
from te_lite.expr.dtype import BYTES

from .cuda_program import CudaKernel, CudaProgram

NEEDED = "arguments", "scratch_bytes", "kernels"
OF_KERNEL = "name", "grid", "block", "arguments", "dynamic_bytes"


def program_facts(program: CudaProgram) -> dict[str, Any]:
    """What a launch needs to know, as JSON."""
    return {
        "arguments": len(program.args),
        "scratch_bytes": [b.size * BYTES[b.dtype] for b in program.scratch],
        "kernels": [_kernel_facts(k) for k in program.kernels],
    }


def facts_from_json(data: Any) -> dict[str, Any]:
    """What `program_facts` made, from a file; `ahead`: the kernels take what `fetch_ahead.PARAMS` says.

    Kernels of before that only wait (`waits`) are launched like others.  Raises GraphError, in one sentence, for
    anything else.
    """
    facts = record(data, NEEDED, "launch")
    arguments, scratch = size(facts["arguments"], "arguments"), sizes(facts["scratch_bytes"], "scratch_bytes")
    kernels = [_launch(k, arguments + len(scratch)) for k in items(facts["kernels"], "kernels")]
    law = "another version made these kernels, which take more; export the network again"
    require(not facts.get("told"), GraphError, "launch", law, facts=sorted(facts))
    ahead = {"ahead": True} if facts.get("ahead") is True else {}
    return {"arguments": arguments, "scratch_bytes": list(scratch), "kernels": kernels, **ahead}


def _launch(data: Any, pointers: int) -> dict[str, Any]:
    facts = record(data, OF_KERNEL, "launch")
    grid, block = sizes(facts["grid"], "grid"), sizes(facts["block"], "block")
    whole = len(grid) == len(block) == 3 and min(*grid, *block) > 0 and max(*grid, *block) < 1 << 31
    require(whole, GraphError, "launch", "grid and block are three extents of at least 1", grid=grid, block=block)
    arguments = sizes(facts["arguments"], "arguments")
    known = all(a < pointers for a in arguments)
    require(known, GraphError, "launch", f"there are {pointers} pointers", arguments=arguments)
    dynamic = size(facts["dynamic_bytes"], "dynamic_bytes")
    require(dynamic < 1 << 31, GraphError, "launch", "dynamic_bytes must fit 31 bits", got=dynamic)
    return {"name": text(facts["name"], "name"), "grid": list(grid), "block": list(block),
            "arguments": list(arguments), "dynamic_bytes": dynamic}  # fmt: skip


def _kernel_facts(k: CudaKernel) -> dict[str, Any]:
    values = {name: getattr(k, name) for name in OF_KERNEL}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
