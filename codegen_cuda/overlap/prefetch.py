"""L2 prefetching of weights while the kernels before their readers compute.

The weights of a network rarely fit the cache together, so every kernel would wait for its own to come from memory,
round after round of its loop.  They depend on no other kernel, so an earlier one asks for them: from sm_90 on one
instruction of a block fetches kilobytes.  The parameters of a network lie in one piece of memory in the order of their
first use; what a step fetches is then one range of bytes, that of the parameters first used `AHEAD` steps later.  Where
a parameter that somebody else holds is larger, it is fetched instead.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import accumulate

from ansor.core.device.network_plan import ExecutionPlan

AHEAD = 2
UNIT = 16
"""Bytes that the instruction fetches are a multiple of this, and begin at one."""
CACHE_SHARE = 4
"""A step fetches at most this part of the cache."""
PARAMS = ["const char *weights_ahead", "unsigned share_ahead", "unsigned bytes_ahead"]
TYPES = "PII"
"""Those of these parameters, which a waiting kernel takes behind its pointers, for PyCUDA."""
FETCH = "  fetch_ahead(weights_ahead, share_ahead, bytes_ahead);"
HELPER = f"""static __device__ __forceinline__ void fetch_ahead({", ".join(PARAMS)}) {{
#ifdef __CUDA_ARCH__
  if (threadIdx.x == 0 && threadIdx.y == 0 && threadIdx.z == 0) {{
    const unsigned long long block = blockIdx.x + gridDim.x * (blockIdx.y + (unsigned long long)gridDim.y * blockIdx.z);
    const unsigned long long start = block * share_ahead;
    if (start < bytes_ahead) {{
      const size_t from = __cvta_generic_to_global(weights_ahead + start);
      const unsigned size = min((unsigned long long)share_ahead, bytes_ahead - start);
      asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" :: "l"(from), "r"(size));
    }}
  }}
#endif
}}"""
"""Block by block `share_ahead` of `bytes_ahead` bytes are fetched, until there are no more."""


@dataclass(frozen=True)
class Ahead:
    """What a kernel fetches for later ones: `nbytes` bytes from `address` on."""

    address: int = 0
    nbytes: int = 0

    def arguments(self, blocks: int, multiprocessors: int) -> list[int]:
        """The values of `PARAMS` for a kernel of `blocks` blocks."""
        return [self.address, share(self.nbytes, blocks, multiprocessors), self.nbytes]


NOTHING = Ahead()


@dataclass(frozen=True)
class Range:
    """`nbytes` bytes of the parameters from byte `start` on, or of the one that is lent in `storage`."""

    start: int
    nbytes: int
    storage: int | None = None


@dataclass(frozen=True)
class Weights:
    """Where the parameters lie in one piece of `nbytes` bytes, by storage, and what each step fetches."""

    offsets: Mapping[int, int]
    nbytes: int
    fetched: tuple[Range, ...]


def laid_out(plan: ExecutionPlan, alignment: int, cache_bytes: int, lent: Collection[int] = ()) -> Weights:
    """The parameters in the order of their first use, each at a multiple of `alignment`; those `lent` lie elsewhere.

    The first step fetches for the steps up to `AHEAD`, each other one for that `AHEAD` steps later, at most a
    `CACHE_SHARE`th of a cache of `cache_bytes`.
    """
    steps = len(plan.steps)
    used = {s: k for k, step in reversed(list(enumerate(plan.steps))) for s in step.storages}
    params = sorted(dict.fromkeys([place.storage for place in plan.params]), key=lambda s: used.get(s, steps))
    order = [s for s in params if s not in lent]
    ends = list(accumulate([-(-plan.storages[s].nbytes // alignment) * alignment for s in order], initial=0))
    firsts = [used.get(s, steps) for s in order]
    until = [ends[bisect_right(firsts, k)] for k in range(steps)]
    most = cache_bytes // CACHE_SHARE // UNIT * UNIT
    fetched = []
    for k in range(steps):
        first, last = 0 if k == 0 else min(k + AHEAD - 1, steps - 1), min(k + AHEAD, steps - 1)
        ranges = [Range(until[first], min(until[last] - until[first], most))]
        for s in [s for s in params if s in lent and first < used.get(s, 0) <= last]:
            ranges.append(Range(0, min(plan.storages[s].nbytes // UNIT * UNIT, most), s))
        fetched.append(max(ranges, key=lambda found: found.nbytes))
    return Weights(dict(zip(order, ends, strict=False)), ends[-1], tuple(fetched))


def share(nbytes: int, blocks: int, multiprocessors: int) -> int:
    """What a block of a kernel of `blocks` blocks fetches, in bytes; those that run first fetch all."""
    return -(-nbytes // (min(blocks, multiprocessors) * UNIT)) * UNIT
