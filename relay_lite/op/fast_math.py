"""tanh and erf as quotients of polynomials: nothing but multiplications and additions, so that loops vectorize.

Both are odd, and constant in float32 from some point on: x is clamped there, and the numerator is x times an even
polynomial.  The coefficients are the well-known ones of Eigen; the error is below 5e-7.  Only the pass FastMath
makes these operators.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from te_lite.errors import require
from te_lite.expr.expr import Expr, binary, const
from te_lite.topi.elementwise import map_elements

from ..ir.errors import GraphError
from ..ir.op_registry import Attrs, OpPattern
from ..ir.types import Type
from .define import Array, define, tensors


@dataclass(frozen=True)
class Rational:
    """x * p(x^2) / q(x^2) for x clamped to [-limit, limit]; coefficients from the highest power down."""

    limit: float
    p: tuple[float, ...]
    q: tuple[float, ...]

    def numpy(self, x: Array) -> Array:
        """The definition, in float32 throughout."""
        x = np.clip(x, x.dtype.type(-self.limit), x.dtype.type(self.limit))
        square = x * x
        top, bottom = (np.polyval(np.asarray(c, x.dtype), square) for c in (self.p, self.q))
        return np.asarray(x * top / bottom)

    def te(self, x: Expr) -> Expr:
        """The same as an expression."""
        x = binary("max", binary("min", x, const(self.limit, x.dtype)), const(-self.limit, x.dtype))
        square = x * x

        def horner(coefficients: Sequence[float]) -> Expr:
            total: Expr = const(coefficients[0], x.dtype)
            for c in coefficients[1:]:
                total = total * square + const(c, x.dtype)
            return total

        return x * horner(self.p) / horner(self.q)


TANH = Rational(
    9.0,
    (-2.76076847742355e-16, 2.00018790482477e-13, -8.60467152213735e-11, 5.12229709037114e-08, 1.48572235717979e-05,
     6.37261928875436e-04, 4.89352455891786e-03),
    (1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03),
)  # fmt: skip
ERF = Rational(
    4.0,
    (-2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06, -5.69250639462346e-05,
     -7.34990630326855e-04, -2.95459980854025e-03, -1.60960333262415e-02),
    (-1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03, -7.37332916720468e-03,
     -1.42647390514189e-02),
)  # fmt: skip


def _define(name: str, rational: Rational) -> None:
    def infer(types: Sequence[Type], attrs: Attrs) -> Type:
        (x,) = tensors(types, 1, name)
        require(x.dtype == "float32", GraphError, name, "a tensor of float32 is needed", dtype=x.dtype)
        return x

    define(
        name,
        OpPattern.ELEMWISE,
        infer,
        lambda args, attrs: rational.numpy(args[0]),
        lambda args, attrs, target: [map_elements(args[0], rational.te, name)],
    )


FAST = {"tanh": "fast_tanh", "erf": "fast_erf"}
"""By the name of the operator that each one stands for."""

_define(FAST["tanh"], TANH)
_define(FAST["erf"], ERF)
