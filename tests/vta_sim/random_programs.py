"""`python -m tests.vta_sim.random_programs --seeds 0:500`: random programs of the sketches of VTA.

A seed is a computation, of the operators in turn, and up to four of its programs, of different sketches where there are
so many.  Each is compiled, played and compared bit for bit with the reference; what is drawn is valid by the limits, so
a program that does not compile is a finding, too.  At the end stands how far the cycles of the lanes are from those of
the simulator.  Exits with 1 when something was found, or the error is more than 2 %.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np

from te_lite import State
from te_lite.bounds.bounds import infer_bounds
from te_lite.errors import TeError
from tests.vta_sim.sketches import OPERATORS, drawn, run, sketches_of
from vta_sim.core.config import Config
from vta_sim.sim import PYNQ
from vta_sim.sketch.cycles import cycles
from vta_sim.sketch.lane_nest import lane_nest

PROGRAMS = 4
MOST_ERROR = 0.02


def outcome(seed: int) -> dict[str, Any]:
    """What became of the programs of a seed: relative errors of their cycles, and sentences on what was wrong."""
    rng, name = np.random.default_rng((22, seed)), list(OPERATORS)[seed % len(OPERATORS)]
    tensors = OPERATORS[name](rng)
    errors, wrong = [], []
    for state in _programs(sketches_of(tensors), rng):
        try:
            out, expected, launch = run(state, tensors, rng)
        except TeError as error:
            wrong.append(str(error))
            continue
        if not np.array_equal(out, expected):
            wrong.append(f"{np.count_nonzero(out != expected)} of {out.size} numbers differ")
        lanes = cycles(lane_nest(infer_bounds(state)), 1, Config(), PYNQ)
        errors.append(float(lanes[0]) / launch.timing().cycles - 1)
    return {"seed": seed, "operator": name, "errors": errors, "wrong": wrong}


def _programs(sketches: list[State], rng: np.random.Generator) -> Iterator[State]:
    order = rng.permutation(len(sketches)).tolist()
    for k in range(PROGRAMS):
        yield next(drawn(sketches[order[k % len(order)]], 1, rng))


def summary(lines: list[dict[str, Any]]) -> bool:
    """Print a row for each operator, and whether all is well."""
    by_name: dict[str, list[float]] = defaultdict(list)
    for line in lines:
        by_name[line["operator"]] += line["errors"]
    everything = [e for errors in by_name.values() for e in errors]
    for name, errors in [*by_name.items(), ("all", everything)]:
        off = np.array(errors)
        rms, most = float(np.sqrt(np.mean(off**2))), float(np.abs(off).max())
        print(f"{name:<10}{len(errors):>6} programs, cycles off by {rms:.2%} (RMS), {most:.2%} at most")
    wrong = [(line["seed"], text) for line in lines for text in line["wrong"]]
    for seed, text in wrong:
        print(f"seed {seed}: {text}")
    print(f"{len(everything) + len(wrong)} programs, {len(wrong)} wrong")
    return not wrong and float(np.sqrt(np.mean(np.square(everything)))) <= MOST_ERROR


def main(argv: list[str] | None = None) -> int:
    p = argparse.ArgumentParser("python -m tests.vta_sim.random_programs", description=__doc__)
    p.add_argument("--seeds", default="0:500", help="A:B, from A up to but not including B")
    first, last = map(int, p.parse_args(argv).seeds.split(":"))
    return 0 if summary([outcome(seed) for seed in range(first, last)]) else 1


if __name__ == "__main__":
    sys.exit(main())
