"""Cost models: what a search believes about programs it has not measured.

Law: no device, no search.

A model is told of measurements (`update`) and gives a score per program (`predict`), higher is better.
"""

from .api import CostModel, FeatureModel, PythonBasedModel, RandomModel, reads_features
from .dataset import Dataset
from .prior import AnalyticalModel
from .trees import Trees
from .xgb import XGBModel

__all__ = [
    "AnalyticalModel", "CostModel", "Dataset", "FeatureModel", "PythonBasedModel", "RandomModel", "Trees", "XGBModel",
    "reads_features",
]  # fmt: skip
