"""A prime factor that occurs e times is dealt out to the parts: combinations with repetition."""

import math


def tilings(n, parts):
    count, p = 1, 2
    while n > 1:
        e = 0
        while n % p == 0:
            n, e = n // p, e + 1
        count *= math.comb(e + parts - 1, parts - 1)
        p = p + 1 if p * p <= n else n
    return count
