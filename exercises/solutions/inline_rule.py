"""Element by element, and read by somebody."""

from ansor.sketch.predicates import consumers
from ansor.sketch.rule import Condition
from te_lite.schedule.place_steps import ComputeInline
from te_lite.schedule.replay import apply


def readers(state, k):
    """The numbers of the stages that read stage k."""
    return consumers(state, k)


class InlineRule:
    paper, departs = "Rule 2, Always Inline.", ""

    def condition(self, ctx, state, k):
        stage = state.stages[k]
        if stage.is_placeholder or stage.op.reduce_axis or not readers(state, k):
            return Condition.SKIP
        return Condition.APPLY_AND_SKIP_REST

    def apply(self, ctx, state, k):
        return [(apply(state, ComputeInline(k)), k - 1)]
