"""Chapter 8: populations, features, the learning model and evolution."""

from . import Mistake, Mistakes

FITS = "fits = ~last | (rows[each, target] * 2 <= tile.max_innermost)"
MISTAKES = {
    "keep_the_product": Mistakes(
        "still has its hole",
        (
            Mistake("out = rows.copy()", "out = rows", "work on a copy"),
            Mistake("        out[each[moved], source[moved]] //= 2\n", "", "the product no longer divides"),
            Mistake("        out[each[moved], target[moved]] *= 2\n", "", "what the source loses"),
            Mistake(FITS, "fits = True", "is longer than the 64 allowed"),
            Mistake("return out, moved", "return out, np.ones(len(rows), bool)", "exactly which rows differ"),
            Mistake("(source != target) & even & fits", "even & fits", "exactly which rows differ"),
            Mistake("rng.integers(tile.parts, size=len(rows))", "np.random.randint(tile.parts, size=len(rows))",
                    "draw from `rng` only"),
        ),
    ),
    "ranking_loss": Mistakes(
        "still has its hole",
        (
            Mistake("push.sum(axis=0) - push.sum(axis=1)", "push.sum(axis=1) - push.sum(axis=0)", "the sign is turned"),
            Mistake("push.sum(axis=0) - push.sum(axis=1)", "-push.sum(axis=1)", "must lower the other one"),
            Mistake(" / max(faster.sum(), 1)", "", "the mean over all pairs"),
            Mistake("- push.sum(axis=1)", "- push.sum(axis=1) - 0.01 * (scores - scores.mean())", "not the derivative"),
            Mistake("faster.sum(), 1)", "faster.sum(), 1) * (costs[None, :] - costs[:, None])", "only their order"),
            Mistake("1 / (1 + np.exp(distance))", "np.exp(-2 * distance) / (np.exp(-2 * distance) + np.exp(-distance))",
                    "inf / inf"),
        ),
        (('1 / (1 + np.exp(distance))', 'np.exp(-np.logaddexp(0, distance))'),),
    ),
    "explain_mistake": Mistakes(
        "still has its hole",
        (
            Mistake("vec_len", "vector_length", "is no column"),
            Mistake("vec_len", "B1.lines", "the model has B1.lines already"),
            Mistake("vec_len", "float_mad", "says the same of every program"),
            Mistake("vec_len", "pragma_unrolled", "of pairs are in order; without"),
        ),
        (('vec_len', 'vec_prod'),),
    ),
    "reuse_distance": Mistakes(
        "still has its hole",
        (
            Mistake("still = max(", "still = min(", "the turns of that loop"),
            Mistake(" if extent > 1", "", "a loop of one turn inside"),
            Mistake(" and j not in access.nest.fixed", "", "fixed ones do not count"),
            Mistake("access.shared - 1 if access.others else -1", "-1", "is reuse_serial, yours reuse_none"),
            Mistake("common > still", "common >= 0", "is reuse_loop, yours reuse_serial"),
            Mistake("nest.extents[still], still + 1", "nest.extents[still], still", "the loops inside of that one"),
            Mistake("nest.extents[still], still + 1", "nest.inside[still], still + 1", "the turns of that loop"),
        ),
        (("max([j for j in loops if j not in moves and j not in access.nest.fixed], default=-1)",
          "nest.innermost(set(loops) - set(moves) - set(access.nest.fixed))"),),
    ),
}  # fmt: skip
