"""Launch parameters of a program, as JSON beside its cubin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from ansor.core.errors import GraphError
from ansor.core.values.json_values import items, record, size, sizes, text
from te_lite.errors import require
from te_lite.expr.dtype import BYTES

from .cuda_program import MAP_TYPES, SWIZZLES, CudaProgram, TensorMap

NEEDED = "arguments", "scratch_bytes", "kernels"
OF_KERNEL = "name", "grid", "block", "arguments", "dynamic_bytes"
OF_MAP = "argument", "dtype", "extents", "box", "steps", "swizzle", "margins"


def program_facts(program: CudaProgram) -> dict[str, Any]:
    """What a launch needs to know, as JSON.  Raises GraphError for a program of open sizes."""
    law = "a program of open sizes is a function of arrays in this process, made by ansor.build, and nothing else yet"
    require(not program.sizes, GraphError, program.name, law, sizes=program.sizes)
    return {
        "arguments": len(program.args),
        "scratch_bytes": [b.size * BYTES[b.dtype] for b in program.scratch],
        "kernels": [{**_values(k, OF_KERNEL), **_maps_facts(k.maps)} for k in program.kernels],
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
    maps = maps_of(facts)
    arguments = (*sizes(facts["arguments"], "arguments"), *[m.argument for m in maps])
    known = all(a < pointers for a in arguments)
    require(known, GraphError, "launch", f"there are {pointers} pointers", arguments=arguments)
    dynamic = size(facts["dynamic_bytes"], "dynamic_bytes")
    require(dynamic < 1 << 31, GraphError, "launch", "dynamic_bytes must fit 31 bits", got=dynamic)
    text(facts["name"], "name")
    return {name: facts[name] for name in OF_KERNEL} | _maps_facts(maps)


def maps_of(facts: Mapping[str, Any]) -> tuple[TensorMap, ...]:
    """The tensor maps of a kernel by its facts.  Raises GraphError, in one sentence, for what is none."""
    return tuple([_map(data) for data in items(facts.get("maps", ()), "maps")])


def _map(data: Any) -> TensorMap:
    facts = {"margins": (), **record(data, OF_MAP[:-1], "tensor map")}
    extents, box, steps, margins = [sizes(facts[name], name) for name in ("extents", "box", "steps", "margins")]
    argument, swizzle = [size(facts[name], name) for name in ("argument", "swizzle")]
    found = TensorMap(argument, text(facts["dtype"], "dtype"), extents, box, steps, swizzle, margins)
    even = 1 <= len(extents) == len(box) == len(steps) <= 5 and 0 < prod(extents) < 1 << 40
    sound = even and all(1 <= n <= 256 for n in box) and all(1 <= n <= 8 for n in steps) and swizzle in SWIZZLES
    law = "it has 1 to 5 axes, boxes of 1 to 256 elements, steps of 1 to 8, a known dtype and swizzle, small margins"
    sound = sound and len(margins) in (0, 4 * (len(extents) == 4)) and all(n <= 128 for n in margins)
    require(sound and found.dtype in MAP_TYPES, GraphError, "tensor map", law, got=found)
    return found


def _maps_facts(maps: Sequence[TensorMap]) -> dict[str, Any]:
    return {"maps": [_values(m, OF_MAP) for m in maps]} if maps else {}


def _values(of: object, names: Sequence[str]) -> dict[str, Any]:
    values = {name: getattr(of, name) for name in names}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
