"""A computation as users hold it: with methods on its states, under TVM's names."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from ..computation.computation import Computation, require_workload
from ..computation.tensor import Tensor
from ..errors import ExprError
from ..hooks import Hook
from .state import State, initial_state


class ComputeDAG(Computation):
    """A computation that schedules, bounds and prints its states.

    Raises ExprError for tensors of which none is computed, or one is listed twice.
    """

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        require_workload("ComputeDAG", tensors, ExprError)
        super().__init__(tensors)

    @cached_property
    def init_state(self) -> State:
        return initial_state(self)

    def get_init_state(self) -> State:
        return self.init_state

    def infer_bound_from_state(self, state: State) -> State:
        """`state` with the extent of every loop filled in."""
        return BOUNDED_STATE(state)

    def print_python_code_from_state(self, state: State) -> str:
        """Equivalent schedule code for `te.create_schedule`."""
        return PYTHON_CODE(state)

    def apply_steps_from_state(self, state: State) -> tuple[object, list[Tensor]]:
        """`(schedule, tensors)` of a state, ready for `te.lower`."""
        return SCHEDULE(state), list(self.tensors)


BOUNDED_STATE: Hook[[State], State] = Hook("the state with inferred bounds")
PYTHON_CODE: Hook[[State], str] = Hook("the Python code of a state", "te_lite.printing.python_text")
SCHEDULE: Hook[[State], object] = Hook("the schedule of a state")
