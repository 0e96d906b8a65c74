"""The methods of values whose work is done by modules above them: the hooks are filled here."""

from __future__ import annotations

from ..bounds.bounds import infer_bounds
from ..computation.text import expr_text
from ..expr.node import EXPR_TEXT
from ..loops.stmt import FUNC_TEXT
from ..loops.stmt_text import func_text
from ..schedule.dag import BOUNDED_STATE, SCHEDULE
from ..schedule.schedule import Schedule
from ..schedule.state import STATE_TEXT
from .state_text import state_text


def install() -> None:
    """Fill the hooks; `te_lite` does so once, when it is imported."""
    EXPR_TEXT.provide(expr_text)
    FUNC_TEXT.provide(func_text)
    STATE_TEXT.provide(state_text)
    BOUNDED_STATE.provide(lambda state: infer_bounds(state).state)
    SCHEDULE.provide(Schedule)
