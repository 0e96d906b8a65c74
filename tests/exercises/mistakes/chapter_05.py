"""Chapter 5: C, vectors and registers."""

from . import Mistake, Mistakes

MISTAKES = {
    "register_tile": Mistakes(
        "one accumulator",
        (
            Mistake("    s[C].vectorize(ji)\n", "", "there are no vectors"),
            Mistake("reorder(io, jo, k, ii, jv, ji)", "reorder(io, jo, ii, jv, ji, k)", "one accumulator"),
            Mistake("split(i, 4)", "split(i, 2)", "more nearly a square"),
            Mistake("split(i, 4)", "split(i, 5)", "do the tiles divide 64?"),
        ),
        (('split(i, 4)', 'split(i, 16)'), ('reorder(io, jo, k, ii, jv, ji)', 'reorder(jo, io, k, jv, ii, ji)'),),
    ),
    "transpose_lines": Mistakes(
        "with two loops one array is walked down",
        (
            Mistake("reorder(io, jo, ii, ji)", "reorder(io, ii, jo, ji)", "along one row of B"),
            Mistake("split(j, 16)", "split(j, 8)", "tiles use parts of lines"),
            Mistake("split(i, 16)\n    jo, ji = s[B].split(j, 16)", "split(i, 32)\n    jo, ji = s[B].split(j, 32)",
                    "more lines than the cache keeps before"),
        ),
        (('reorder(io, jo, ii, ji)', 'reorder(jo, io, ji, ii)'),),
    ),
}  # fmt: skip
