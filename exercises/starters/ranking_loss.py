"""Chapter 8, 30 minutes: a loss that ranks.

A search only asks which of two programs is faster, so a model may be trained on that. For programs i and j with
costs[i] < costs[j] the loss of a pair is log(1 + exp(-(scores[i] - scores[j]))): small when i has the much higher
score. `gradient` gives the derivative of the mean loss over all such pairs, one number for each score. Only the order
of the costs counts, pairs of equal cost count nothing, and scores may be as large as 1000.
"""

import numpy as np


def gradient(scores, costs):
    ...
    return ...
