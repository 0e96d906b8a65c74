"""Chapter 3: bound inference."""

from . import Mistake, Mistakes

MISTAKES = {
    "needed_rows": Mistakes(
        "still has its hole",
        (
            Mistake("first * stride", "first", "first read is 4, you begin at 2"),
            Mistake("(count - 1) * stride", "count * stride", "more than are needed"),
            Mistake("(taps - 1) * dilation", "(taps - 1)", "dilation 2: 12 is the last read"),
            Mistake("(taps - 1) * dilation + 1", "(taps - 1) * dilation", "too few"),
        ),
    ),
    "split_guard": Mistakes(
        "still has its hole",
        (
            Mistake("-(-extent // factor)", "extent // factor", "does the outer loop round up?"),
            Mistake("extent % factor != 0", "True", "the guard is always true"),
            Mistake("extent % factor != 0", "False", "a guard must keep it out"),
            Mistake("-(-extent // factor)", "extent // factor + 1", "12 split by 4: index [12]"),
            Mistake("+ inner < extent", "+ inner <= extent", "48 split by 5: index [48]"),
        ),
    ),
    "loop_extents": Mistakes(
        "still has its hole",
        (
            Mistake("min(length, rest)", "length", "no longer than what is left to split"),
            Mistake("-(-rest // length)", "rest // length", "what does not divide needs one more turn"),
            Mistake(
                "reversed(list(zip(rel.parts[1:], rel.lengths, strict=True)))",
                "zip(rel.parts[1:], rel.lengths)",
                "further in",
            ),
            Mistake(
                "extents[rel.parts[0]] = rest",
                "extents[rel.parts[0]] = extents[rel.parent]",
                "what the lengths of all others leave",
            ),
            Mistake("prod(extents[part] for part", "sum(extents[part] for part", "all points of its parts"),
            Mistake(
                "dict(enumerate(roots))",
                "{n: a.extent for n, a in enumerate(stage.op.all_axes)}",
                "these begin with `roots`",
            ),
        ),
        (("min(length, rest)", "length if length < rest else rest"),),
    ),
}
