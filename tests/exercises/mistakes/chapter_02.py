"""Chapter 2: a schedule is a list of steps."""

from . import Mistake, Mistakes

MISTAKES = {
    "matmul_rows": Mistakes(
        "the innermost loop is k",
        (
            Mistake("reorder(i, k, j)", "reorder(k, i, j)", "keep one row at hand"),
            Mistake("reorder(i, k, j)", "reorder(k, j, i)", "the innermost loop is i"),
            Mistake("reorder(i, k, j)", "reorder(j, i, k)", "where 1920 would do"),
            Mistake("    return s\n", "", "is there a `return`?"),
            Mistake("return s", "return s.state", "give the schedule back"),
        ),
        (("    return s", "    s[C].parallel(i)\n    s[C].vectorize(j)\n    return s"),),
    ),
    "steps_by_hand": Mistakes(
        "still has its hole",
        (
            Mistake('["SP", 2, 2, 32, [16], 1]', '["SP", 2, 1, 32, [16], 1]', "loop number 1 is i.1.1"),
            Mistake("[0, 2, 4, 1, 3]", "[0, 1, 4, 2, 3]", "did a split move the numbers"),
            Mistake("[4], 1]", "[12], 1]", "loop number 0 is i.0 of 4"),
            Mistake('["AN", 2, 0, 3]', '["AN", 2, 0, 2]', "i.0 of 12, vectorize, where i.0 of 12, parallel"),
        ),
    ),
}
