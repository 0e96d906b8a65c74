"""Searches that need no device, for tests of determinism and of resuming; run as a program it prints what it asked for.

    python -m tests.ansor.search_case DIRECTORY [seed=N] [replay] [only=TARGET,MODEL ...]

Every case leaves its log in the directory; with `replay`, results are taken from the logs that are there.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ansor
from ansor.cost_model.prior import AnalyticalModel
from ansor.offline.analytical import AnalyticalRunner
from ansor.offline.common import NoBuilder
from ansor.offline.replay import ReplayRunner
from tests.conv_layer import conv2d_layer

TRIALS, PER_ROUND, SEED = 15, 5, 4
PARAMS = {"evolutionary_search_population": 64, "evolutionary_search_num_iters": 1}
TARGETS = ("c", "cuda")
MODELS = {
    "random": lambda: ansor.RandomModel(1),
    "analytical": AnalyticalModel,
    "learning": lambda: ansor.XGBModel(num_warmup_sample=5, seed=1),
}


def conv_task(target: str) -> ansor.SearchTask:
    """A strided, padded convolution with odd extents, on hardware that every machine agrees on."""
    hardware = ansor.HardwareParams(num_cores=4, vector_unit_bytes=64, target="c") if target == "c" else None
    tensors = conv2d_layer(2, 9, 9, 16, 12, 3, 2, 1)
    return ansor.SearchTask(compute_dag=ansor.ComputeDAG(tensors), target=target, hardware_params=hardware)


class Diary:
    """A measure callback that keeps the steps of the programs, in the order in which they were measured."""

    def __init__(self) -> None:
        self.steps: list[str] = []

    def callback(self, policy: Any, inputs: Sequence[ansor.MeasureInput], results: Sequence[Any]) -> None:
        self.steps += [json.dumps(json.loads(ansor.dump_record_to_string(inputs[0], results[0]))["i"][1])]


def tune(target: str, model: str, log: Path, runner: Any, seed: int = SEED, trials: int = TRIALS) -> list[str]:
    """Run a case, and give the steps of the programs in the order in which they were measured."""
    task, diary = conv_task(target), Diary()
    policy = ansor.SketchPolicy(task, MODELS[model](), PARAMS, seed=seed, verbose=0)
    options = ansor.TuningOptions(
        trials, num_measures_per_round=PER_ROUND, verbose=0, builder=NoBuilder(), runner=runner,
        measure_callbacks=[ansor.RecordToFile(log), diary],
    )  # fmt: skip
    task.tune(options, search_policy=policy)
    return diary.steps


def digest(sequence: Sequence[str]) -> str:
    """Sixteen hexadecimal digits that stand for a sequence of programs."""
    return hashlib.sha256("\n".join(sequence).encode()).hexdigest()[:16]


def main(directory: Path, replay: bool, seed: int, cases: Sequence[tuple[str, str]]) -> dict[str, str]:
    """The digests of some cases."""
    out = {}
    for target, model in cases:
        log = directory / f"{target}_{model}.json"
        runner = ReplayRunner(log) if replay else AnalyticalRunner(noise=0.2, seed=3)
        again = log.with_suffix(".again") if replay else log
        out[f"{target} {model}"] = digest(tune(target, model, again, runner, seed))
    return out


if __name__ == "__main__":
    seeds = [int(word.removeprefix("seed=")) for word in sys.argv[2:] if word.startswith("seed=")]
    only = [tuple(word.removeprefix("only=").split(",")) for word in sys.argv[2:] if word.startswith("only=")]
    every = [(target, model) for target in TARGETS for model in MODELS]
    cases = [case for case in every if case in (only or every)]
    print(json.dumps(main(Path(sys.argv[1]), "replay" in sys.argv[2:], seeds[0] if seeds else SEED, cases)))
