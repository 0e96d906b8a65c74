"""A register tile: loads and multiply-adds counted in the loop over k of the emitted C."""

import re
from types import ModuleType

import numpy as np

import te_lite as te
from codegen_c.emit import emit
from codegen_c.processor import Options

from ..core.schedules import needs_right, product, state_of
from ..core.verdict import function, need

HINT = """Split i and j, and put the inner halves inside of k; the innermost loop is the vector. Four rows of four
vectors are 16 accumulators and 8 loads."""

LOOP = re.compile(r"^( *)for \(int64_t k\w* = 0;[^\n]*\n(.*?)^\1}", re.DOTALL | re.MULTILINE)


def innermost(text: str) -> list[str]:
    """The bodies of the loops over k that have no other loop over k inside."""
    found = []
    for _, body in LOOP.findall(text):
        found += innermost(body) or [body]
    return found


def check(answer: ModuleType) -> None:
    """Vectors, then what is inside of the loop over k, then its counts."""
    tensors = product(64, 32, 64)
    state = state_of(function(answer, "schedule")(*tensors))
    needs_right(state, tensors, np.random.default_rng(9))
    text = emit(te.lower(state, tensors), options=Options(vector_bytes=64, registers=28))
    need("f32x16" in text, "there are no vectors of 16 floats: vectorize a loop of 16 that runs along rows of C")
    bodies = [body for body in innermost(text) if "+=" in body or "C" in body]
    need(bodies, "no loop over k is left in the C text: do not unroll it")
    body = max(bodies, key=len)
    inside = re.search(r"\b(for|if) \(", body)
    need(
        not inside and "C[" not in body,
        "loops or conditions are left inside of k, so the sums go to memory: do the tiles divide 64?",
    )
    adds = len(re.findall(r"\+= ", body))
    loads = len(set(re.findall(r"A\[[^\]]*\]", body))) + len(set(re.findall(r"VEC\(f32x16, B\[[^\]]*\]", body)))
    need(adds > 1, "there is one accumulator: every sum waits for the one before; a tile must be inside of k")
    found = f"{adds} multiply-adds with {loads} loads, {adds / loads:.2f} each"
    need(adds >= 1.8 * loads, f"{found}; 1.8 are wanted: make the tile larger, and more nearly a square")
