"""Templates with knobs and their tuners, under autotvm's names (`from ansor import autotvm`).

Law: a template is measured by the same builders, runners and workers as any program.

@autotvm.template("matmul")
def matmul(n): ...                                           # reads autotvm.get_config(), see task.py

task = autotvm.task.create("matmul", args=(512,), target="c")
tuner = autotvm.tuner.XGBTuner(task)
tuner.tune(
    n_trial=200,
    measure_option=autotvm.measure_option(builder=autotvm.LocalBuilder(), runner=autotvm.LocalRunner()),
    callbacks=[autotvm.callback.progress_bar(200), autotvm.callback.log_to_file("matmul.log")],
)
with autotvm.apply_history_best("matmul.log"):
    schedule, tensors = matmul(512)
"""

from ..cluster import RPCRunner
from . import callback, measure, record, task, tophub, tuner
from .annotate import AnnotateEntity
from .config import ConfigEntity
from .dispatch import ApplyConfig, DispatchContext, FallbackContext, get_config
from .errors import InstantiationError, TemplateError
from .fallback import FallbackConfigEntity
from .history import ApplyHistoryBest, apply_history_best
from .knob import OtherOptionEntity
from .local import LocalBuilder, LocalRunner, measure_option
from .measure import MeasureErrorNo, MeasureInput, MeasureResult, Refusal, RunOptions, TemplateBackend
from .reorder import ReorderEntity
from .space import ConfigSpace
from .split import SplitEntity
from .task import Task, create, template

__all__ = [
    "AnnotateEntity", "ApplyConfig", "ApplyHistoryBest", "ConfigEntity", "ConfigSpace", "DispatchContext",
    "FallbackConfigEntity", "FallbackContext", "InstantiationError", "LocalBuilder", "LocalRunner", "MeasureErrorNo",
    "MeasureInput", "MeasureResult", "OtherOptionEntity", "RPCRunner", "Refusal", "ReorderEntity", "RunOptions",
    "SplitEntity", "Task", "TemplateBackend", "TemplateError", "apply_history_best", "callback", "create", "get_config",
    "measure", "measure_option", "record", "task", "template", "tophub", "tuner",
]  # fmt: skip
