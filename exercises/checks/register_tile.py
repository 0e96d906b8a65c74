"""A register tile: loads and multiply-adds counted in the loop over k of the emitted C."""

import re
from types import ModuleType

import numpy as np

import te_lite as te
from codegen_c.emit import emit
from codegen_c.host import Options

from ..core.schedules import needs_right, product, state_of
from ..core.verdict import function, need

HINT = """Split i and j, and put the inner halves inside of k; the innermost loop is the vector. Four rows of four
vectors are 16 accumulators and 8 loads."""

LOOP = re.compile(r"for \(int k\w* = 0;[^\n]*\n(.*?)\n\s*}", re.DOTALL)


def check(answer: ModuleType) -> None:
    """Vectors, then the loop over k, then its counts."""
    tensors = product(64, 32, 64)
    state = state_of(function(answer, "schedule")(*tensors))
    needs_right(state, tensors, np.random.default_rng(9))
    text = emit(te.lower(state, tensors), options=Options(vector_bytes=64, registers=28))
    need("f32x16" in text, "there are no vectors of 16 floats: vectorize a loop of 16 that runs along rows of C")
    bodies = [body for body in LOOP.findall(text) if "+=" in body or "= C" in body]
    need(bodies, "no innermost loop over k is left in the C text: k must run outside of the tile, and not be unrolled")
    body = bodies[-1]
    into_memory = re.search(r"(VEC\(f32x16, C\[[^\n]*|\bC\[[^\n]*) \+?= ", body)
    need(not into_memory, "the sums go to memory for every k: only the loops of the tile may be inside of it")
    adds = len(re.findall(r"\+= ", body))
    loads = len(set(re.findall(r"A\[[^\]]*\]", body))) + len(set(re.findall(r"VEC\(f32x16, B\[[^\]]*\]", body)))
    need(adds <= 28, f"{adds} accumulators are more than 28 registers: the compiler spills them")
    need(adds > 1, "there is one accumulator: every sum waits for the one before; a tile must be inside of k")
    found = f"{adds} multiply-adds with {loads} loads, {adds / loads:.2f} each"
    need(adds >= 1.8 * loads, f"{found}; 1.8 are wanted: make the tile larger, and more nearly a square")
