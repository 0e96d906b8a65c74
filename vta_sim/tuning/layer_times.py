"""The gain by tuning, layer by layer.

print(table(layers(tasks, counts, "vta.log", config)))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ansor.autotvm.config import ConfigEntity
from ansor.autotvm.record import PathLike, best_pairs, is_of, load_from_file
from ansor.autotvm.task import Task

from ..core.config import Config
from ..graph.extract import sizes_text
from ..graph.machine_kernel import Workload
from ..graph.schedule import knobs_of
from ..sim import PYNQ, CycleModel
from ..top import ConvKnobs
from .layer_programs import default_knobs, launch_layer


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
        return sizes_text(self.task.workload)


def layers(
    tasks: Sequence[Task],
    counts: Mapping[Workload, int],
    log: PathLike,
    config: Config,
    model: CycleModel = PYNQ,
) -> list[LayerTimes]:
    """What tuning brought for each task.  Raises JournalError when the log cannot be read."""
    pairs = list(load_from_file(log)) if Path(log).exists() else []
    out = []
    for task in tasks:
        work, own = task.workload, [pair for pair in pairs if is_of(pair[0], task)]
        best = next((inp.config for inp, _ in best_pairs(own)), None)
        times = [launch_layer(work, k, config).timing(model).ms for k in _choices(work, best, config)]
        out.append(LayerTimes(task, counts[work], len(own), *times))
    return out


def _choices(workload: Workload, best: ConfigEntity | None, config: Config) -> tuple[ConvKnobs, ConvKnobs, ConvKnobs]:
    """The knobs of the fallback, the default ones, and those of the best record."""
    default = default_knobs(workload, config)
    return ConvKnobs(), default, default if best is None else knobs_of(best)


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
    columns = "".join(f"{ms:>14.3f}{flop / ms / 1e6:>7.2f}" for ms in times)
    return f"{name:<26}{runs:>5}{trials:>7}{columns}"
