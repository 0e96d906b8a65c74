"""What a launch needs to know comes back from JSON; a changed value is refused in one sentence, or is a launch."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest

pytest.importorskip("onnxruntime")

import te_lite as te
from ansor.core.errors import GraphError
from codegen_cuda.emission.emit import emit
from codegen_cuda.program.facts import facts_from_json, program_facts
from te_lite import topi
from tests.relay_lite.hostile_exports import changed_json


def facts() -> dict[str, object]:
    x = te.placeholder((64, 64), name="x")
    y = topi.nn.relu(x)
    s = te.create_schedule(y.op)
    i, j = s[y].op.axis
    s[y].bind(i, te.thread_axis("blockIdx.x"))
    s[y].bind(j, te.thread_axis("threadIdx.x"))
    return program_facts(emit(te.lower(s, [x, y], "f")))


def test_facts_come_back() -> None:
    made = facts()
    assert facts_from_json(json.loads(json.dumps(made))) == made


def test_kernels_of_before() -> None:
    """Those that wait only are called like others; those that took one argument more are refused."""
    assert facts_from_json({**facts(), "waits": True}) == facts()
    assert facts_from_json({**facts(), "waits": False, "told": False}) == facts()
    assert facts_from_json({**facts(), "ahead": True})["ahead"] is True
    with pytest.raises(GraphError, match="launch: another version made these kernels"):
        facts_from_json({**facts(), "waits": True, "told": True})


def test_changed_facts() -> None:
    rng, made, refused = random.Random(0), facts(), 0
    for _ in range(500):
        try:
            found = facts_from_json(changed_json(rng, made))
        except GraphError as error:
            refused += 1
            assert "\n" not in str(error)
        else:
            assert all(type(n) is int for k in found["kernels"] for n in (*k["grid"], *k["block"], *k["arguments"]))
            assert np.prod([k["block"] for k in found["kernels"]], dtype=object) > 0
    assert refused > 100
