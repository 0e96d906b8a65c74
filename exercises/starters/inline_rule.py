"""Chapter 7, 25 minutes: the rule that inlines.

A sketch rule looks at stage k of a state. Write the one that inlines what is cheap: stages that are computed element
by element. Stages with a reduction must stay (their sum would be computed anew for every use), and so must a stage that
nobody reads (the output). After inlining, the walk goes on with the stage before.

`state.stages[k]` is a stage: `is_placeholder` says whether it is an input, its `op` has a `name` and, unless it is one,
`reduce_axis`, which is empty without a reduction. `readers(state, k)` below tells who reads a stage.
"""

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
        return Condition.SKIP  # when does it apply? ...

    def apply(self, ctx, state, k):
        return [(state, k - 1)]  # the state with stage k inlined ...
