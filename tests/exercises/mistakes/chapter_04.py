"""Chapter 4: lowering and the oracle."""

from . import Mistake, Mistakes

COMPARED = 'np.all(np.abs(got.astype("float64") - exact) <= allowed)'
MISTAKES = {
    "sum_tolerance": Mistakes(
        "still has its hole",
        (
            Mistake(COMPARED, "np.array_equal(got, exact.astype('float32'))", "this is rounding and nothing else"),
            Mistake(COMPARED, "not np.any(np.abs(got - exact) > allowed)", "an element that nobody wrote (NaN)"),
            Mistake(COMPARED, "np.allclose(got, exact, rtol=1e-3, atol=1e-3)", "a sum that lacks one of its terms"),
            Mistake("terms * scale", "2000 * terms * scale", "off by a thousandth of its scale is accepted"),
            Mistake(COMPARED, "np.allclose(got, exact, rtol=1e-6, atol=0)", "and you refuse it"),
        ),
        (('terms * scale', '4 * np.sqrt(terms) * scale'),),
    ),
    "conv_oracle": Mistakes(
        "still has its hole",
        (
            Mistake("kernel[:, :, y, x]", "kernel[:, :, kh - 1 - y, kw - 1 - x]", "your kernel is mirrored"),
            Mistake("(padding, padding)))", "(padding, padding)), 'edge')", "is it padded with zeros?"),
            Mistake("- kh) // stride + 1", "- kh + 1) // stride", "the shape is"),
            Mistake("fc,chw", "cf,chw", "ValueError"),
            Mistake("out += np", "out = np", "elements are wrong, the first at"),
        ),
    ),
    "column_sums": Mistakes(
        "the parallel loop has 4 turns",
        (
            Mistake("    s[parts].parallel(parts.op.axis[0])\n", "", "no loop over them is parallel yet"),
            Mistake("split(k, 16)", "split(k, 64)", "too few to keep 16 threads at work"),
            Mistake("split(k, 16)", "split(k, 2)", "before a thread has started"),
            Mistake("parts = s.rfactor(B, outer)\n    s[parts].parallel(parts.op.axis[0])", "s[B].parallel(outer)",
                    "depend on each other"),
        ),
        (('split(k, 16)', 'split(k, nparts=16)'), ('rfactor(B, outer)', 'rfactor(B, _)'),),
    ),
    "axes_of_loops": Mistakes(
        "still has its hole",
        (
            Mistake("rel.lengths[n:]", "rel.lengths[:n]", "the lengths of all later parts"),
            Mistake("prod(rel.lengths[n:])", "(rel.lengths[n] if n < len(rel.lengths) else 1)", "split by (3, 2)"),
            Mistake("reversed(rel.parts)", "rel.parts", "counts fastest"),
            Mistake("rest % extent, rest // extent", "rest, rest // extent", "no part leaves its extent"),
            Mistake("rest % extent, rest // extent", "rest % extent, rest", "i and j fused (24 x 8"),
        ),
        (("rest % extent, rest // extent", "rest - rest // extent * extent, rest // extent"),),
    ),
}  # fmt: skip
