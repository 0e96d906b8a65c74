"""What is kept in the end, in one line: the best programs found or the default ones, and operators of PyTorch.

A search times each program by itself.  What a call of the whole takes with the records that it found is timed in turns
with what it takes with default programs, which are what a graph gets without any record, so a search never makes a
module slower.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from ansor.core.values.checks import counted
from ansor.measure.progress import seconds_text
from te_lite.errors import TeError

from .faster import GAIN, Run, Tried, call_seconds

DEFAULTS_COST = 2.5
"""Building a module of default programs takes up to so many times as long as one of records: some are drawn first.

The parts of a ResNet with an empty store of kernels took 2.2 times as long, a linear layer 1.1 times.
"""
GRACE_SECONDS, GRACE_SHARE = 4.0, 0.12
"""How long after the seconds of a budget, of which it may be a share, all that is timed must have ended."""
NO_TIME = "too little time was left"
logger = logging.getLogger("ansor.torch")


@dataclass(frozen=True)
class Built:
    """A module: what runs it, whether records are in it of a search right before, the seconds that compiling took."""

    run: Run
    searched: bool
    seconds: float


@dataclass(frozen=True)
class Compared:
    """The seconds of a call with the best programs found and with default ones; none, and `why`, where they are not
    known.
    """

    found: float = math.nan
    default: float = math.nan
    why: str = ""

    @property
    def defaults_kept(self) -> bool:
        """Whether default programs are faster by more than `GAIN`."""
        return self.default < (1 - GAIN) * self.found


def last_of(end: float, seconds: float | None) -> float:
    """When all that is timed must have ended, by the clock of `end`, which is that of a budget of so many seconds."""
    return end + max(GRACE_SECONDS, GRACE_SHARE * (seconds or 0.0))


def against_defaults(
    found: Built, make: Callable[[], Run], inputs: Callable[[], Sequence[Any]], device: Any, last: float
) -> tuple[Run, Compared]:
    """The faster one of the programs found and default ones, which `make` gives, and what a call takes with them.

    `inputs` draws tensors that the module may be called with on its device.  Nothing is timed where `make` is not
    likely to be done before `last`, by the monotonic clock.
    """
    if time.monotonic() + DEFAULTS_COST * found.seconds > last:
        return found.run, Compared(why=NO_TIME)
    try:
        default, given = make(), inputs()
        before, after = call_seconds([partial(run, *given) for run in (found.run, default)], device, last)
    except (torch.OutOfMemoryError, TeError) as error:
        logger.info("default programs are not timed: %s", error)
        return found.run, Compared(why="they did not run")
    compared = Compared(before, after)
    return default if compared.defaults_kept else found.run, compared


def sentence(compared: Compared | None, tried: Sequence[Tried]) -> str:
    """What is kept, in one line: of the programs found and default ones if both were there, and of PyTorch's."""
    parts = [] if compared is None else [_of_programs(compared)]
    return f"ansor: {'; '.join([*parts, *_of_operators(tried)])}"


def _of_programs(compared: Compared) -> str:
    if compared.why:
        return f"the best programs found are kept; default ones were not timed beside them, for {compared.why}"
    found, default = seconds_text(compared.found), seconds_text(compared.default)
    if compared.defaults_kept:
        return f"default programs are kept, {default} a call (the best found: {found})"
    return f"the best programs found are kept, {found} a call (default ones: {default})"


def _of_operators(tried: Sequence[Tried]) -> list[str]:
    kept = [one for one in tried if one.kept]
    if not tried:
        return []
    if not kept:
        return [f"{counted(len(tried), 'operator')} tried in PyTorch, none is faster there"]
    names = ", ".join([f"{one.short} ({counted(one.calls, 'call')})" for one in kept])
    figures = f"{seconds_text(kept[-1].theirs)} a call (without: {seconds_text(kept[0].ours)})"
    return [f"{counted(len(tried), 'operator')} tried in PyTorch, kept there: {names}, {figures}"]
