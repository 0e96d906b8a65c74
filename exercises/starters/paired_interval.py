"""Chapter 12, 25 minutes: whether the new searcher is better, or lucky.

Two searchers were run with the same seeds: `old[k]` and `new[k]` are the seconds of the best program found with seed k.
Seeds differ much more than searchers do. Give the ends of a 95 % confidence interval of the mean of log(old / new):
above 0 the new one is better. Over many studies it must hold the truth in 95 of 100, neither much less (too narrow: you
claim what is not so) nor nearly always (too wide: you see nothing). `t` is Student's 97.5 % point for these seeds.
"""

import numpy as np


def interval(old, new, t):
    ...
    return ..., ...
