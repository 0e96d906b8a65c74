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
    "fusion_rule": Mistakes(
        "but the rule gives None",
        (
            Mistake("level * len(splits) - 1", "level * len(splits)", "it is computed in loop j.0"),
            Mistake("target is None or not state.dag.tiled[k]", "not state.dag.tiled[k]",
                    "no consumer to fuse it with"),
            Mistake("target is None or not state.dag.tiled[k]", "target is None",
                    "the sum of a bias: it reuses nothing"),
            Mistake("(3,) if machine.is_gpu else (1, 2)", "(1, 2)",
                    "on a GPU: the number of fused states is 1, yours 2"),
            Mistake("(3,) if machine.is_gpu else (1, 2)", "(3,) if machine.is_gpu else (2,)",
                    "on a CPU: the number of fused states is 2, yours 1"),
            Mistake("k - 1))", "k))", "the walk goes on with stage 1, yours with 2"),
            Mistake("compute_at(fused, k, target, level * len(splits) - 1)", "fused", "inside of its consumer"),
            Mistake(' and not made_by(state, k, "CHW")', "", "is of no use"),
            Mistake("not machine.is_gpu and not", "not", "may not look at a stage that is fused"),
            Mistake('rest=not machine.is_gpu and not made_by(state, k, "CHW")', "", "without `rest`"),
        ),
    ),
}  # fmt: skip
