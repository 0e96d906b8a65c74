"""Chapter 7, 15 minutes: how large a space is.

The sketch SSRSRS of a product leaves the lengths of its tiles open. A loop of n that becomes `parts` loops gets lengths
whose product is n, in order: 12 in two parts is 1 x 12, 2 x 6, 3 x 4, 4 x 3, 6 x 2, 12 x 1. Count them without writing
them down: n may have 40 bits, and `parts` be 8.
"""

import math


def tilings(n, parts):
    ...
    return ...
