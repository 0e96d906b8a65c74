"""Builders and runners that start no process: builds are done at once or late, costs come from a function."""

import random
import threading
from concurrent.futures import Future
from itertools import count

import ansor
from ansor.measure import BuildResult, MeasureResult
from ansor.offline.common import NoBuilder


class ReadyBuilder:
    """Every build is done at once; its file name says how many there were before it."""

    n_parallel = 2

    def __init__(self):
        self.builds = []
        self.closed = 0

    def submit(self, inp):
        future: Future[BuildResult] = Future()
        future.set_result(BuildResult(f"program {len(self.builds)}", (), 0, "", 0.0))
        self.builds.append(future)
        return future

    def close(self):
        self.closed += 1


class LateBuilder(NoBuilder):
    """Builds end late, and in an order of their own."""

    def __init__(self, seed):
        self.chance = random.Random(seed)

    def submit(self, inp):
        done: Future[BuildResult] = Future()
        threading.Timer(self.chance.uniform(0, 0.1), done.set_result, [super().submit(inp).result()]).start()
        return done


class CostRunner:
    """The k-th candidate takes `cost(k)` seconds, or fails where that is None."""

    def __init__(self, cost):
        self.cost = cost
        self.numbers = count()

    def run(self, inp, built):
        cost = self.cost(next(self.numbers))
        ok = cost is not None
        return MeasureResult((cost if ok else 1e10,), 0 if ok else 4, "", 0.1, 0)

    def close(self):
        pass


class Heard:
    """The programs of each task that were measured, in order, with what its policy thought of them."""

    def __init__(self):
        self.found = {}

    def callback(self, policy, inputs, results):
        for inp in inputs:
            self.found.setdefault(inp.task.workload_key, []).append((policy.seed, inp.steps, inp.prediction))


class InTurns:
    """A runner that knows what programs take: `seconds(inp)` alone, `in_turns(k, inp)` three times in turns."""

    def __init__(self):
        self.ran, self.compared = [], []

    def run(self, inp, built):
        self.ran.append(inp)
        return MeasureResult((float(self.seconds(inp)),), 0, "", 0.1, 1_700_000_000 + len(self.ran))

    def compare(self, inputs, builds):
        self.compared.append(list(inputs))
        return [[self.in_turns(k, inp)] * 3 for k, inp in enumerate(inputs)]

    def close(self):
        pass


def tune(task, log, runner, trials=8, resume=True):
    """A random search with builds that are done at once."""
    policy = ansor.SketchPolicy(task, ansor.RandomModel(0), seed=1, verbose=0)
    callbacks = [ansor.RecordToFile(log)]
    options = ansor.TuningOptions(
        trials, builder=ReadyBuilder(), runner=runner, measure_callbacks=callbacks, resume=resume
    )  # fmt: skip
    task.tune(options, search_policy=policy)


def fake_measurer(cost, callbacks=()):
    """A measurer of which candidate k takes `cost(k)` seconds."""
    return ansor.ProgramMeasurer(ReadyBuilder(), CostRunner(cost), callbacks, verbose=0)
