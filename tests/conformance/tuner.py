"""What every tuner must do, and a made-up accelerator to try it on.  A test file inherits the suite:

class TestMyTuner(TunerSuite):
    learns = True

    def make(self, task, rng):
        return MyTuner(task, rng=rng)
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest

from ansor import autotvm
from ansor.autotvm.measure import Refusal
from ansor.autotvm.tuner import RandomTuner, Tuner

Array = np.ndarray[Any, np.dtype[Any]]
LAYERS = [(14, 16, 16), (28, 8, 8), (12, 16, 32), (7, 32, 32)]
MARKS = (50, 100, 200)


@autotvm.template("made_up.conv")
def made_up_conv(size: int, inputs: int, outputs: int) -> None:
    """Seven knobs as those of an accelerator's convolution; nothing is computed."""
    cfg = autotvm.get_config()
    cfg.define_split("tile_b", 1, num_outputs=2)
    cfg.define_split("tile_h", size, num_outputs=2)
    cfg.define_split("tile_w", size, num_outputs=2)
    cfg.define_split("tile_ci", inputs, num_outputs=2)
    cfg.define_split("tile_co", outputs, num_outputs=2)
    cfg.define_knob("oc_nthread", [1, 2])
    cfg.define_knob("h_nthread", [1, 2])
    cfg.add_flop(2.0 * 9 * 256 * size**2 * inputs * outputs)


@autotvm.template("made_up.small")
def made_up_small() -> None:
    """Forty configurations."""
    cfg = autotvm.get_config()
    cfg.define_knob("x", list(range(8)))
    cfg.define_knob("y", list(range(5)))
    cfg.add_flop(1e6)


def sizes_of(config: autotvm.ConfigEntity) -> dict[str, int]:
    """The chosen inner lengths and values by knob."""
    return {name: value[1] if kind == "sp" else value for name, kind, value in config.values()}


class MadeUpDevice:
    """Seconds by a formula: two memories of limited size, transfers that virtual threads hide, a cost per tile.

    `calls` are the indices that were built, in order.
    """

    def __init__(self) -> None:
        self.calls: list[int | None] = []

    def build(self, task: autotvm.Task, config: autotvm.ConfigEntity) -> Any:
        self.calls.append(config.index)
        if task.name == "made_up.small":
            c = sizes_of(config)
            return 1e-6 * (1 + (c["x"] - 5) ** 2 + (c["y"] - 1) ** 2)
        return conv_seconds(*task.args, **sizes_of(config))

    def run(self, task: autotvm.Task, program: Any, options: autotvm.RunOptions) -> Sequence[float]:
        return [program]


def conv_seconds(
    size: int, inputs: int, outputs: int, tile_b: int, tile_h: int, tile_w: int, tile_ci: int, tile_co: int,
    oc_nthread: int, h_nthread: int,
) -> float | Refusal:  # fmt: skip
    """Seconds of a configuration, or why it has none."""
    threads = oc_nthread * h_nthread
    halo = (tile_h + 2) * (tile_w + 2)
    refuse = autotvm.MeasureErrorNo.INSTANTIATION_ERROR
    if halo * tile_ci * threads > 1024 or tile_h * tile_w * tile_co * threads > 1024:
        return Refusal(refuse, "the tile does not fit the memory for data")
    if 9 * tile_ci * tile_co * threads > 512:
        return Refusal(refuse, "the tile does not fit the memory for weights")
    if outputs // tile_co % oc_nthread or size // tile_h % h_nthread:
        return Refusal(refuse, "a virtual thread would be idle")
    tiles = (size // tile_h) * (size // tile_w) * (outputs // tile_co)
    load = 200 + 30 * (tile_h + 2) + 2 * halo * tile_ci + 640 * tile_ci * tile_co
    compute = 20 + 9 * tile_h * tile_w * tile_ci * tile_co
    step = load + compute if threads == 1 else max(load, compute) + 0.1 * min(load, compute)
    store = 100 + 8 * tile_h * tile_w * tile_co + 20 * tile_co
    return (10_000 + tiles * (inputs // tile_ci * step + store)) * 1e-8


def conv_task(layer: tuple[int, int, int] = LAYERS[0]) -> autotvm.Task:
    return autotvm.create("made_up.conv", layer, "vta")


def small_task() -> autotvm.Task:
    return autotvm.create("made_up.small", (), "vta")


def option(device: Any, n_parallel: int | None = None, **runner: Any) -> Any:
    """Measurements on `device`."""
    builder = autotvm.LocalBuilder(n_parallel=n_parallel, backend=device)
    return autotvm.measure_option(builder, autotvm.LocalRunner(**runner))


def all_scores(task: autotvm.Task) -> Array:
    """FLOPS of every configuration of a task, 0 for those that are refused."""
    device = MadeUpDevice()
    built = [device.build(task, task.config_space.get(k)) for k in range(task.config_space.range_length)]
    return np.array([0.0 if isinstance(b, Refusal) else task.flop / b for b in built])


@cache
def best_of(layer: tuple[int, int, int]) -> float:
    """The best FLOPS of a layer."""
    return float(all_scores(conv_task(layer)).max())


def regrets(make: Any, layer: tuple[int, int, int], seed: int) -> list[float]:
    """The best FLOPS there are, divided by the best found after each of MARKS trials."""
    task, device, monitor = conv_task(layer), MadeUpDevice(), autotvm.callback.Monitor()
    optimum = best_of(layer)
    make(task, np.random.default_rng(seed)).tune(MARKS[-1], option(device), callbacks=[monitor])
    best = np.maximum.accumulate([*monitor.trial_scores()])
    return [optimum / max(best[m - 1], 1.0) for m in MARKS]


def geomean_regrets(make: Any, seeds: Sequence[int] = (0, 1, 2)) -> Array:
    """float64 [len(MARKS)]: the geometric mean over layers and seeds."""
    found = [regrets(make, layer, seed) for layer in LAYERS for seed in seeds]
    mean: Array = np.exp(np.log(found).mean(axis=0))
    return mean


class TunerSuite:
    """`learns`: finds better configurations than chance.  `ordered`: does the same whatever the seed."""

    learns = False
    ordered = False

    def make(self, task: autotvm.Task, rng: np.random.Generator) -> Tuner:
        raise NotImplementedError("supply a method `make`")

    def tuned(self, task: autotvm.Task, seed: int, n_trial: int, **options: Any) -> tuple[Tuner, MadeUpDevice]:
        tuner, device = self.make(task, np.random.default_rng(seed)), MadeUpDevice()
        tuner.tune(n_trial, option(device), **options)
        return tuner, device

    def test_every_point_of_a_small_space_once(self) -> None:
        """More trials than points: the tuner stops when all are measured, and knows the best."""
        task = small_task()
        tuner, device = self.tuned(task, 0, 1000)
        assert sorted(device.calls) == list(range(len(task.config_space)))
        assert not tuner.has_next() and tuner.next_batch(4) == []
        assert sizes_of(tuner.best_config) == {"x": 5, "y": 1}
        assert tuner.best_flops == pytest.approx(1e12)
        assert device.calls[tuner.best_iter - 1] == tuner.best_config.index

    def test_as_many_trials_as_asked_for(self) -> None:
        tuner, device = self.tuned(conv_task(), 1, 77)
        assert len(device.calls) == len(set(device.calls)) == tuner.trials == 77

    def test_a_seed_decides_the_run(self) -> None:
        runs = [self.tuned(conv_task(), seed, 60)[1].calls for seed in (3, 3, 4)]
        assert runs[0] == runs[1]
        assert (runs[0] == runs[2]) == self.ordered

    def test_batches_change_nothing(self) -> None:
        """Measured several at a time, a tuner proposes what it proposes one by one."""

        def proposals(batch: int) -> list[int]:
            task, found = conv_task(), []
            tuner, scores = self.make(task, np.random.default_rng(5)), all_scores(task)
            while len(found) < 64:
                configs = tuner.next_batch(min(batch, 64 - len(found)))
                found += [c.index for c in configs]
                inputs = [autotvm.MeasureInput("vta", task, c) for c in configs]
                results = [
                    autotvm.MeasureResult((task.flop / s if s else 1e9,), int(s == 0), "", 0.0, 0)
                    for s in scores[[c.index for c in configs]]
                ]
                tuner.update(inputs, results)
            return found

        assert proposals(1) == proposals(5)

    def test_what_a_log_knows_is_not_measured_again(self, tmp_path: Any) -> None:
        log, task = tmp_path / "log", small_task()
        _, first = self.tuned(task, 0, 23, callbacks=[autotvm.callback.log_to_file(log)])
        tuner, second = self.make(task, np.random.default_rng(0)), MadeUpDevice()
        assert tuner.load_history(autotvm.record.load_from_file(log)) == 23
        known = tuner.best_flops
        tuner.tune(1000, option(second))
        assert sorted(first.calls + second.calls) == list(range(len(task.config_space)))
        assert tuner.best_flops >= known > 0 and tuner.trials == len(task.config_space) - 23

    def test_nothing_works(self) -> None:
        """A device on which every configuration fails: the tuner goes on, and has no best."""

        class Broken(MadeUpDevice):
            def build(self, task: Any, config: Any) -> Any:
                super().build(task, config)
                return Refusal(autotvm.MeasureErrorNo.COMPILE_DEVICE, "broken")

        task, device = conv_task(), Broken()
        tuner = self.make(task, np.random.default_rng(0))
        tuner.tune(90, option(device))
        assert len(set(device.calls)) == 90 and tuner.best_config is None and tuner.best_flops == 0

    def test_filtered_configurations_are_not_proposed(self) -> None:
        task = small_task()
        task.config_space.multi_filter(lambda config: (config["x"].val + config["y"].val) % 3 == 0)
        _, device = self.tuned(task, 2, 1000)
        assert sorted(device.calls) == [k for k in range(40) if (k % 8 + k // 8) % 3 == 0]

    def test_better_than_chance(self) -> None:
        if not self.learns:
            pytest.skip("learns nothing")
        assert (geomean_regrets(self.make) < geomean_regrets(lambda t, rng: RandomTuner(t, rng=rng))).all()
