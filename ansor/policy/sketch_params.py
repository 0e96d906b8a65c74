"""The parameters of a `SketchPolicy`: names, where TVM has them TVM's, defaults and ranges."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from te_lite.errors import require
from te_lite.extensions import ALL

from ..core.errors import TaskError
from ..sketch.generate import extra_rules

DEFAULT_PARAMS: Mapping[str, Any] = {
    "eps_greedy": 0.05,
    "retry_search_one_round_on_empty": 1,
    "sample_init_min_population": 50,
    "sample_init_use_measured_ratio": 0.2,
    "evolutionary_search_population": 2048,
    "evolutionary_search_num_iters": 4,
    "evolutionary_search_mutation_prob": 0.85,
    "evolutionary_search_crossover_prob": 0.3,
    "cpu_multi_level_tiling_structure": "SSRSRS",
    "gpu_multi_level_tiling_structure": "SSSRRSRS",
    "max_innermost_split_factor": 64,
    "max_innermost_reduce_factor": 1024,
    "max_vectorize_size": 64,
    "max_padding": 0.125,
    "disable_change_compute_location": 0,
    "extra_sketch_rules": ALL,
}

RANGES: Mapping[str, tuple[float, float]] = {
    "eps_greedy": (0, 1),
    "retry_search_one_round_on_empty": (0, math.inf),
    "sample_init_min_population": (1, math.inf),
    "sample_init_use_measured_ratio": (0, 1),
    "evolutionary_search_population": (1, math.inf),
    "evolutionary_search_num_iters": (0, math.inf),
    "evolutionary_search_mutation_prob": (0, 1),
    "evolutionary_search_crossover_prob": (0, 1),
    "max_padding": (0, 1),
    "disable_change_compute_location": (0, 1),
}


def checked_params(defaults: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """All parameters.  Raises TaskError for one that is unknown, of the wrong type, or out of its range."""
    law = "params must be a mapping of names to values"
    require(isinstance(given, Mapping), TaskError, "SketchPolicy", law, got=given)
    for name, value in given.items():
        if name not in defaults:
            raise TaskError(f"SketchPolicy: unknown parameter {name!r}, known: {', '.join(defaults)}")
        wanted = type(defaults[name])
        if type(value) is not wanted:
            raise TaskError(f"SketchPolicy: parameter {name!r} must be of type {wanted.__name__}, got {value!r}")
        least, most = RANGES.get(name, (-math.inf, math.inf))
        law = f"parameter {name!r} must be at least {least}" + (f" and at most {most}" if most < math.inf else "")
        require(name not in RANGES or least <= value <= most, TaskError, "SketchPolicy", law, value=value)
    params = {**defaults, **given}
    return {**params, "extra_sketch_rules": ",".join(extra_rules(params["extra_sketch_rules"]))}
