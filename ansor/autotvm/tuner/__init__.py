"""Tuners: they propose configurations of a task, and learn from how they did."""

from .ga_tuner import GATuner
from .index_tuner import GridSearchTuner, RandomTuner
from .optimizer import LookAtAll, ModelOptimizer, SimulatedAnnealingOptimizer
from .tuner import Tuner
from .unseen import Unseen
from .xgb_tuner import XGBTuner

__all__ = [
    "GATuner", "GridSearchTuner", "LookAtAll", "ModelOptimizer", "RandomTuner", "SimulatedAnnealingOptimizer", "Tuner",
    "Unseen", "XGBTuner",
]  # fmt: skip
