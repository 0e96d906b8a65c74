"""Chapter 1: an expression and its meaning."""

from . import Mistake, Mistakes

MISTAKES = {
    "window_sum": Mistakes(
        "still has its hole",
        (
            Mistake("(n - 2,)", "(n,)", "the last ones read beyond x"),
            Mistake("(n - 2,)", "(n - 3,)", "there are n - 2 windows"),
            Mistake("x[i] + x[i + 1] + x[i + 2]", "(x[i] + x[i + 1] + x[i + 2]) / 3.0", "these are means"),
            Mistake("x[i + 2]", "x[i + 1]", "so -0.0674 is right, and you give"),
        ),
    ),
    "stable_softmax": Mistakes(
        "still has its hole",
        (
            Mistake("x[i, j] - top[i]", "x[i, j]", "subtract something first"),
            Mistake("te.exp(x[i, j] - top[i])", "x[i, j] - top[i] + 1.0", "not those of softmax"),
            Mistake("/ total[i]", "/ top[i]", "do not add up to 1"),
        ),
        (("- top[i]", "- (top[i] - 1.0)"),),
    ),
}
