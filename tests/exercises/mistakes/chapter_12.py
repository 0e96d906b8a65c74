"""Chapter 12: research."""

from . import Mistake, Mistakes

HALF = "half = t * gain.std(ddof=1) / np.sqrt(len(gain))"
MISTAKES = {
    "beat_random": Mistakes(
        "20 percent fewer are wanted",
        (
            Mistake("np.argsort(x[untried] @ weights", "np.argsort(-x[untried] @ weights", "worse than chance"),
            Mistake("untried = rng.permutation(np.setdiff1d(np.arange(len(features)), tried))",
                    "untried = rng.permutation(len(features))", "a program is tried twice"),
            Mistake("order[:6], untried[:2]", "order[:12], untried[:2]", "a batch has 1 to 8 programs"),
            Mistake("if len(tried) == 0:", "if len(tried) < 300:", "20 percent fewer are wanted"),
        ),
        (('1.0 * np.eye', '10.0 * np.eye'),),
    ),
    "paired_interval": Mistakes(
        "still has its hole",
        (
            Mistake(HALF, "half = t * np.sqrt((np.log(old).var(ddof=1) + np.log(new).var(ddof=1)) / len(old))",
                    "compare seed by seed"),
            Mistake(" / np.sqrt(len(gain))", "", "the error of the mean, not the spread"),
            Mistake("half = t *", "half =", "too narrow"),
            Mistake("np.log(old / new)", "np.log(new / old)", "and not of something else"),
            Mistake("gain.mean() - half, gain.mean() + half", "gain.mean() + half, gain.mean() - half",
                    "the lower one goes first"),
        ),
        (('np.log(old / new)', '(np.log(old) - np.log(new))'),),
    ),
}  # fmt: skip
