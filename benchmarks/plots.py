"""Figures of best-so-far curves: the median of several runs as a line, their quartiles as a band (extra `[report]`)."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.report import is_there

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Band:
    """A curve: float64 `x` [n] and `quartiles` [3, n] (lower quartile, median, upper quartile; inf where unknown)."""

    x: Array
    quartiles: Array


def available() -> bool:
    """Whether matplotlib is installed; said, once, if not."""
    return is_there("matplotlib", "no picture is drawn")


def save(path: Path, title: str, panels: Mapping[str, Mapping[str, Band]], ylabel: str) -> None:
    """Write a PNG file with a panel for each x axis; `panels[xlabel][name]` is a curve."""
    importlib.import_module("matplotlib").use("Agg")
    pyplot = importlib.import_module("matplotlib.pyplot")
    figure, axes = pyplot.subplots(1, len(panels), figsize=(6.4 * len(panels), 4.4), squeeze=False)
    for axis, (xlabel, curves) in zip(axes[0], panels.items(), strict=True):
        for name, band in curves.items():
            known = np.isfinite(band.quartiles).all(axis=0)
            low, middle, high = band.quartiles[:, known]
            (line,) = axis.step(band.x[known], middle, where="post", label=name)
            axis.fill_between(band.x[known], low, high, step="post", alpha=0.2, color=line.get_color(), linewidth=0)
        axis.set(xlabel=xlabel, ylabel=ylabel, xscale="log", yscale="log")
        axis.grid(True, which="both", alpha=0.25)
        axis.legend()
    figure.suptitle(title)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
