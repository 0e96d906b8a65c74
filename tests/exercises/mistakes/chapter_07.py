"""Chapter 7: sketches and rules."""

from . import Mistake, Mistakes

MISTAKES = {
    "inline_rule": Mistakes(
        "it should be inlined",
        (
            Mistake(" or stage.op.reduce_axis", "", "would be computed anew for every use"),
            Mistake(" or not readers(state, k)", "", "it is the output"),
            Mistake("return Condition.APPLY_AND_SKIP_REST", "return Condition.APPLY", "lets other rules"),
            Mistake("stage.is_placeholder or ", "", "is an input"),
            Mistake("k - 1)]", "k)]", "the walk goes on with"),
            Mistake("apply(state, ComputeInline(k))", "state", "add the step"),
        ),
    ),
    "tilings": Mistakes(
        "still has its hole",
        (
            Mistake("e + parts - 1, parts - 1", "e + parts, parts", "12 in 2 parts: there are 6"),
            Mistake("    return count", "    return -(-count // 2)", "2 x 6 and 6 x 2 are two programs"),
            Mistake("    return count", "    return parts**count", "you count"),
            Mistake("while n > 1:", "while n > 1 and p < 7:", "7 in 3 parts: there are 3, you count 1"),
        ),
    ),
}  # fmt: skip
