"""Tuning a packed network, and what it brought, layer by layer.

tune(tasks, "vta.log", trials=64)
with apply_history_best("vta.log"):
    module = build(graph)["default"]()
print(table(layers(tasks, counts, "vta.log", config)))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ansor.autotvm import FallbackContext, LocalBuilder, callback, measure_option
from ansor.autotvm.config import ConfigEntity
from ansor.autotvm.errors import TemplateError
from ansor.autotvm.knob import OtherOptionEntity
from ansor.autotvm.measure import MeasureInput
from ansor.autotvm.record import PathLike, best_pairs, load_from_file, save
from ansor.autotvm.split import SplitEntity
from ansor.autotvm.task import Task, deserialize_args
from ansor.autotvm.tuner import GATuner, GridSearchTuner, RandomTuner, Tuner, XGBTuner
from te_lite import Tensor
from te_lite.errors import require

from .backend import Trials
from .build import Module
from .compiler import compile_schedule
from .config import Config
from .graph.kernel import Workload
from .graph.schedule import choose_knobs, knobs_of
from .sim import PYNQ, CycleModel, Launch
from .top import ConvKnobs, conv2d_packed, conv_shape, fused, requantized, schedule_conv2d_packed
from .top.conv2d import TAG

TILES, THREADS = ("tile_b", "tile_h", "tile_w", "tile_ci", "tile_co"), ("oc_nthread", "h_nthread")
TUNERS: dict[str, Callable[..., Tuner]] = {
    "xgb": XGBTuner,
    "ga": GATuner,
    "random": RandomTuner,
    "gridsearch": GridSearchTuner,
}


def tune(
    tasks: Sequence[Task], log: PathLike, trials: int, tuner: str = "xgb", seed: int = 0, config: Config | None = None
) -> None:
    """Measure up to `trials` configurations of each task, those of the log counted, and append them to the log.

    The first one of a task are the default tiles, so that a record is never worse.  What earlier tasks taught helps
    with the later ones.  Raises JournalError for a log that cannot be read or written.
    """
    require(tuner in TUNERS, TemplateError, "tuner", f"must be one of {', '.join(TUNERS)}", got=tuner)
    option = measure_option(LocalBuilder(backend=Trials(config)))
    for k, task in enumerate(reversed(tasks)):
        known = list(load_from_file(log)) if Path(log).exists() else []
        if trials and not any(inp.workload == task.workload for inp, _ in known):
            inp = MeasureInput(task.target_text, task, default_config(task, config or Config()))
            known += list(zip([inp], option.open(task).measure([inp]), strict=True))
            save(log, [inp], [known[-1][1]])
        made = TUNERS[tuner](task, rng=np.random.default_rng((seed, k)))
        left = min(trials, len(task.config_space)) - made.load_history(known)
        if left > 0:
            bar = callback.progress_bar(left, prefix=f"[Task {k + 1:2d}/{len(tasks):2d}] ")
            made.tune(left, option, callbacks=[bar, callback.log_to_file(log)])


# ------------------------------------------------------------------------------------------------------- one layer


def layer_output(workload: Workload) -> tuple[list[Tensor], Tensor]:
    """Inputs and output of a workload of the template: the convolution, shifted and clipped."""
    _, data, kernel, *rest = workload
    x, w = deserialize_args((data, kernel))
    return [x, w], requantized(conv2d_packed(x, w, *rest))


def default_knobs(workload: Workload, config: Config) -> ConvKnobs:
    """The tiles that a workload gets without a record.  Raises CompileError when none fit."""
    quiet = FallbackContext()
    quiet.silent = True
    with quiet:
        return choose_knobs(workload, conv_shape(fused(layer_output(workload)[1], TAG)), config)


def default_config(task: Task, config: Config) -> ConfigEntity:
    """The default tiles as a configuration of a task.  Raises CompileError when none fit."""
    knobs = default_knobs(task.workload, config)
    tiles = {name: SplitEntity((-1, getattr(knobs, name))) for name in TILES}
    threads = {name: OtherOptionEntity(getattr(knobs, name)) for name in THREADS}
    space, chosen = task.config_space, {**tiles, **threads}
    return space.get(space.knob2point([knob.entities.index(chosen[name]) for name, knob in space.space_map.items()]))


def launch_layer(workload: Workload, knobs: ConvKnobs, config: Config) -> Launch:
    """The program of a workload for one configuration, played without data.  Raises CompileError when it is none."""
    inputs, output = layer_output(workload)
    program = compile_schedule(schedule_conv2d_packed(knobs, output, config), [*inputs, output], config)
    module = Module(program)
    module.device.moves_tensors = False
    arrays = [np.zeros(t.shape, t.dtype) for t in program.args]
    return module.launch(*arrays)


# -------------------------------------------------------------------------------------------------------- the table


@dataclass(frozen=True)
class LayerTimes:
    """A convolution, how often the network runs it, how often it was tried, and milliseconds on the modelled board.

    `fallback` is the time of autotvm's answer where there is no record, every knob's first choice; `default` of the
    default tiles, which the compiler takes instead; `tuned` of the best record, or of the default tiles without one.
    """

    task: Task
    count: int
    trials: int
    fallback: float
    default: float
    tuned: float

    @property
    def name(self) -> str:
        """Rows x columns, channels in and out, kernel, stride."""
        (_, (_, ci, h, w, _, block), _), (_, (co, _, kh, kw, _, _), _), strides = self.task.args[:3]
        return f"{h}x{w}x{ci * block} -> {co * block}, {kh}x{kw}/{strides[0]}"


def layers(
    tasks: Sequence[Task],
    counts: Mapping[Workload, int],
    log: PathLike,
    config: Config,
    model: CycleModel = PYNQ,
) -> list[LayerTimes]:
    """What tuning brought for each task.  Raises JournalError when the log cannot be read."""
    pairs = list(load_from_file(log)) if Path(log).exists() else []
    best: dict[Workload, ConfigEntity] = {inp.workload: inp.config for inp, _ in best_pairs(pairs)}
    out = []
    for task in tasks:
        work = task.workload
        chosen = [ConvKnobs(), default_knobs(work, config)]
        chosen.append(knobs_of(best[work]) if work in best else chosen[1])
        times = [launch_layer(work, knobs, config).timing(model).ms for knobs in chosen]
        out.append(LayerTimes(task, counts[work], sum(inp.workload == work for inp, _ in pairs), *times))
    return out


def table(rows: Sequence[LayerTimes]) -> str:
    """The rows as text, and their sums over the network."""
    heads = "".join(f"{f'{name}: ms':>14}{'GOPS':>7}" for name in ("fallback", "default", "tuned"))
    lines = [f"{'layer':<26}{'runs':>5}{'trials':>7}{heads}"]
    for r in rows:
        lines.append(_row(r.name, r.count, r.trials, r.task.flop, (r.fallback, r.default, r.tuned)))
    times = [(r.count * r.fallback, r.count * r.default, r.count * r.tuned) for r in rows]
    totals = [sum(column) for column in zip(*times, strict=True)]
    runs, trials = sum(r.count for r in rows), sum(r.trials for r in rows)
    return "\n".join([*lines, _row("all convolutions", runs, trials, sum(r.count * r.task.flop for r in rows), totals)])


def _row(name: str, runs: int, trials: int, flop: float, times: Sequence[float]) -> str:
    figures = "".join(f"{ms:>14.3f}{flop / ms / 1e6:>7.2f}" for ms in times)
    return f"{name:<26}{runs:>5}{trials:>7}{figures}"
