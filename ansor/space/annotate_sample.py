"""Turn a sketch into one complete program at random, valid by construction (section 4.2 of the Ansor paper).

CPU: tile sizes, places of untiled stages, parallel, unroll, vectorize.  GPU: tile sizes, threads, unroll.
"""

from __future__ import annotations

import numpy as np

from te_lite.bounds import infer_bounds
from te_lite.replay import apply
from te_lite.state import State

from ..core.hardware import HardwareParams
from ..core.options import SketchOptions
from ..core.target import Target
from ..sketch.shared_memory import estimated_shared_bytes
from .locations import change_locations
from .parallel_loops import add_parallel, default_depths
from .threads import bind_threads
from .tile_sizes import Lengths, draw_free, draw_threads, fill, holes, thread_splits
from .vector_loops import (
    CPU_UNROLL,
    GPU_UNROLL,
    add_unroll,
    add_vectorize,
    loops_of_programs,
    most_lanes,
    unrolled_stages,
)

DRAWS = 400
FILLS = 8


def sample(
    sketch: State,
    target: Target | str,
    hardware_params: HardwareParams,
    rng: np.random.Generator,
    options: SketchOptions | None = None,
) -> State | None:
    """A complete program of `sketch`, or None when none was found that the hardware can run.

    GPU programs keep to the threads per block, virtual threads and shared memory bytes of `hardware_params`.  The
    same generator state gives the same program.
    """
    target = Target.of(target)
    options = options or SketchOptions()
    hardware = hardware_params.completed(target)
    if target.is_gpu:
        return _sample_gpu(sketch, hardware, rng, options)
    return _sample_cpu(sketch, hardware, rng, options)


def _sample_cpu(sketch: State, hardware: HardwareParams, rng: np.random.Generator, options: SketchOptions) -> State:
    filled = fill(sketch, draw_free(sketch, set(), rng, options.max_innermost_split_factor))
    state = infer_bounds(filled).state
    if not options.disable_change_compute_location:
        state = change_locations(state, rng)
    depths = default_depths(state, hardware.num_cores)
    limits = _draw_limits(state, rng, CPU_UNROLL)
    counts = {}
    for k in loops_of_programs(state):
        most = most_lanes(state, k, depths.get(k, 0), options.max_vectorize_size)
        counts[k] = 1 + int(rng.integers(most)) if most else 0
    state = add_vectorize(add_unroll(add_parallel(state, depths), limits), counts)
    return _without_extents(filled, state)


def _draw_limits(state: State, rng: np.random.Generator, values: tuple[int, ...]) -> dict[int, int]:
    """One of `values` for every stage that gets a limit below which its loops are unrolled."""
    return {k: values[int(rng.integers(len(values)))] for k in unrolled_stages(state)}


def _without_extents(filled: State, annotated: State) -> State:
    """The replay of the steps of `annotated`, which begin with those of `filled`."""
    for step in annotated.steps[len(filled.steps) :]:
        filled = apply(filled, step)
    return filled


def _sample_gpu(
    sketch: State, hardware: HardwareParams, rng: np.random.Generator, options: SketchOptions
) -> State | None:
    for _ in range(FILLS):
        lengths = draw_gpu_lengths(sketch, hardware, rng, options.max_innermost_split_factor)
        if lengths is None:
            return None
        state = bind_threads(fill(sketch, lengths), hardware, rng)
        if state is not None:
            return add_unroll(state, _draw_limits(state, rng, GPU_UNROLL))
    return None


def draw_gpu_lengths(
    sketch: State, hardware: HardwareParams, rng: np.random.Generator, max_innermost: int
) -> Lengths | None:
    """Lengths for all holes of a GPU sketch, within the limits; None when the shared copies never fit.

    After `DRAWS` draws that need too much shared memory, reductions get the smallest tiles.
    """
    threaded = {p for positions in thread_splits(sketch).values() for p in positions}
    for small in (False, True):
        for _ in range(DRAWS):
            lengths = draw_threads(sketch, hardware, rng, max_innermost)
            if small:
                lengths.update({p: (1,) * len(s.lengths) for p, s in holes(sketch).items() if p not in threaded})
            else:
                lengths.update(draw_free(sketch, threaded, rng, max_innermost))
            if estimated_shared_bytes(sketch, lengths) <= hardware.max_shared_memory_per_block:
                return lengths
    return None
