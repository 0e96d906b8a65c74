"""The number of ordered factorisations: by enumeration for small numbers, by known counts for large ones."""

import itertools
import time
from math import prod
from types import ModuleType

from ..core.verdict import function, need

HINT = """Each prime factor is dealt out on its own: with p**e, how many ways are there to write e as an ordered sum of
`parts` numbers that may be 0? `math.comb` counts combinations. Multiply over the primes."""


def enumerated(n: int, parts: int) -> int:
    """All lists of divisors, one by one."""
    divisors = [d for d in range(1, n + 1) if n % d == 0]
    return sum(prod(lengths) == n for lengths in itertools.product(divisors, repeat=parts))


def check(answer: ModuleType) -> None:
    """Small ones first; then one that no enumeration ends."""
    tilings = function(answer, "tilings")
    for n, parts in ((12, 2), (1, 3), (7, 3), (8, 2), (36, 3), (64, 4), (30, 1)):
        got, want = tilings(n, parts), enumerated(n, parts)
        unordered = want > 1 and got < want and parts > 1
        order = "; 2 x 6 and 6 x 2 are two programs" if unordered else ""
        need(got == want, f"{n} in {parts} parts: there are {want}, you count {got}{order}")
    start = time.perf_counter()
    got = tilings(2**20 * 3**10 * 7, 8)
    need(got == 888030 * 19448 * 8, f"2**20 * 3**10 * 7 in 8 parts: {888030 * 19448 * 8} are right, you count {got}")
    need(time.perf_counter() - start < 5, "right, but slow: deal out the prime factors, do not write the tiles down")
