"""A model that lacks a column: trained again with the column that the learner names, and scored on unseen programs."""

from functools import cache
from types import ModuleType

import numpy as np

from ansor.analytical import machine_of, seconds
from ansor.cost_model.metrics import pairwise_accuracy
from ansor.features import INDEX, SCHEMA, extract
from ansor.space.programs import programs
from ansor.space.spaces import home
from ansor.space.states import concrete
from te_lite.bounds.bounds import infer_bounds

from ..core.verdict import need
from .keep_the_product import HARDWARE, TARGET, drawn

HINT = """Compare the innermost loops of the two programs: what is written beside the one of the faster program? There
is a group of columns about that."""
KNOWN = ("parallel_prod", "B1.lines", "B2.lines")
TRAINED = 800


@cache
def measured() -> tuple[np.ndarray, np.ndarray]:
    """Features [programs, columns] and seconds [programs] of 1,200 programs, by the analytical model."""
    space, rows = drawn(1200)
    made = programs(home(space), rows, TARGET, HARDWARE)
    return np.asarray(extract(made, HARDWARE))[:, 0, :], seconds(made, machine_of(TARGET, HARDWARE))


def scores(columns: tuple[str, ...]) -> np.ndarray:
    """Of all programs by a linear model of the columns, trained on the first of them; higher is faster."""
    features, costs = measured()
    x = np.c_[np.ones(len(features)), features[:, [INDEX[name] for name in columns]]]
    return np.asarray(-x @ np.linalg.lstsq(x[:TRAINED], np.log(costs[:TRAINED]), rcond=None)[0])


def accuracy(columns: tuple[str, ...]) -> float:
    """The share of pairs of unseen programs in the right order."""
    return float(pairwise_accuracy(scores(columns)[TRAINED:], measured()[1][TRAINED:]))


def mistaken() -> tuple[int, int]:
    """Of unseen programs the pair (faster, slower) with the largest ratio that the model orders wrong."""
    costs, found = measured()[1][TRAINED:], scores(KNOWN)[TRAINED:]
    ratio = np.where(found[:, None] < found[None, :], costs[None, :] / costs[:, None], 0)
    fast, slow = np.unravel_index(int(ratio.argmax()), ratio.shape)
    return int(fast) + TRAINED, int(slow) + TRAINED


def show(fast: int, slow: int) -> None:
    """Print both programs."""
    space, rows = drawn(1200)
    for what, k in (("faster", fast), ("slower, and preferred by the model", slow)):
        state = concrete(home(space), rows[k], TARGET, HARDWARE)
        print(f"{what}, {measured()[1][k] * 1e6:.0f} us:\n{infer_bounds(state).state}")


def check(answer: ModuleType) -> None:
    """What is known already and what says nothing have sentences of their own."""
    name = vars(answer).get("MISSING")
    fast, slow = mistaken()
    if name is ...:
        show(fast, slow)
    need(name is not ..., "`MISSING` still has its hole: two programs that the model orders wrong are printed above")
    need(name in INDEX, f"{name!r} is no column; `[column.name for column in ansor.features.SCHEMA]` has all")
    need(name not in KNOWN, f"the model has {name} already")
    constant = bool(np.ptp(measured()[0][:, INDEX[str(name)]]) == 0)
    need(not constant, f"{name} says the same of every program here, so no order can come of it")
    before, after = accuracy(KNOWN), accuracy((*KNOWN, str(name)))
    meaning = SCHEMA[INDEX[str(name)]].unit
    need(after >= before + 0.06, f"with {name} ({meaning}), {after:.1%} of pairs are in order; without, {before:.1%}")
    both = scores((*KNOWN, str(name)))
    need(both[fast] > both[slow], f"with {name} the model still prefers the slower one of the two programs")
