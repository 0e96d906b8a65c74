"""How much memory the constants may take that are computed while a model is read."""

from __future__ import annotations

from collections.abc import Iterable

from ansor.core.values.checks import imported_limit
from te_lite.errors import require

from ...ir.errors import GraphError
from ...ir.nodes import Constant, Expr, Tuple

WEIGHTS_COPIED = 4
"""How often what is computed may hold all weights: cast, transposed, ..."""


class ComputedConstants:
    """The bytes computed so far of one model, whose weights have `weights` bytes."""

    def __init__(self, weights: int) -> None:
        self.computed, self.most = 0, imported_limit() + WEIGHTS_COPIED * weights

    def count(self, made: Iterable[Expr], given: Iterable[Expr | None], what: str) -> None:
        """Keep the sum of the constants among `made` within what an import may take.  Raises GraphError."""
        known = [e for e in given if e is not None]
        fields = [f for e in made for f in (e.fields if isinstance(e, Tuple) else (e,)) if e not in known]
        self.computed += sum(f.value.nbytes for f in fields if isinstance(f, Constant))
        law = f"all constants computed from others may have {self.most} bytes, raise ANSOR_TENSOR_BYTES for more"
        require(self.computed <= self.most, GraphError, what, law, bytes=self.computed)
