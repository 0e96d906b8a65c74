"""tanh and erf of float32 by quotients of polynomials: less exact (5e-7), but loops with them vectorize.

It is a pass of level 4, so it runs only when asked for.  exp and softmax stay as they are: exp is an instruction or
vectors on every target here.  On `c` the exact tanh and erf are vectors, too (codegen_c/functions.py).
"""

from __future__ import annotations

from ..ir.make import call
from ..ir.nodes import Call, Expr
from ..ir.visit import rewrite
from ..op.fast_math import FAST
from .sequential import Pass, acts_on


@acts_on(*FAST)
def FastMath() -> Pass:
    """Replace tanh and erf of float32 by fast_tanh and fast_erf."""
    return Pass("FastMath", 4, (), lambda function: rewrite(function, _fast))


def _fast(node: Expr) -> Expr:
    if isinstance(node, Call) and node.op.name in FAST and node.dtype == "float32":
        return call(FAST[node.op.name], *node.args)
    return node
