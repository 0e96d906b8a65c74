"""Expressions as C text in which the functions of float32 are those of `functions.py`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from te_lite.expr.expr import Call
from te_lite.loops.c_text import POSTFIX, CText

from .functions import definitions, function_name, is_ours


@dataclass
class ScalarText(CText):
    """Prints expressions of one function; `helpers` collects the text of the functions that are called."""

    def function(self, e: Call, args: Sequence[str]) -> tuple[str, int]:
        """The text of a call; see `CText`."""
        if not is_ours(e):
            return super().function(e, args)
        name = function_name(e)
        self.helpers.update(definitions(name))
        return f"{name}_f32({', '.join(args if name == 'pow' else args[:1])})", POSTFIX
