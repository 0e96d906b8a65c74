"""ansor: searches for fast programs.

task = ansor.SearchTask(func, args, target="c")
task.tune(ansor.TuningOptions(num_measure_trials=64, measure_callbacks=[ansor.RecordToFile("log.json")]))
sch, args = task.apply_best("log.json")
"""

# What Ctrl-C does during all other imports.
from .core.host import start_up as start_up  # isort: split

from typing import TYPE_CHECKING

from te_lite import ComputeDAG
from te_lite.extensions import using as extensions
from te_lite.later import later

from .core.errors import (
    AnsorError,
    BackendError,
    BudgetError,
    ExportError,
    JournalError,
    MeasureError,
    NoRecordError,
    TaskError,
)
from .core.host.hints import version_of
from .core.target import target
from .core.target.hardware import HardwareParams
from .core.target.registry import register_backend
from .core.target.target import Target
from .core.tasks.task import TASK_ACTIONS, SearchTask
from .core.tasks.workloads import (
    make_workload_key,
    register_workload,
    register_workload_tensors,
    workload_key_to_tensors,
)
from .core.values.options import LayoutRewriteOption
from .cost_model import PythonBasedModel, RandomModel, XGBModel
from .measure import (
    BuildResult,
    LocalBuilder,
    LocalRPCMeasureContext,
    LocalRunner,
    MeasureCallback,
    MeasureErrorNo,
    MeasureInput,
    MeasureResult,
    ProgramMeasurer,
)
from .policy.callbacks import PreloadMeasuredStates, PythonBasedMeasureCallback
from .policy.sketch_policy import SketchPolicy
from .policy.task_actions import Actions
from .policy.tuning_options import TuningOptions
from .records.best import distill_record_file, load_best_record
from .records.lines import (
    RecordReader,
    dump_record_to_string,
    load_record_from_string,
    load_records,
    save_records,
)
from .records.recorder import RecordToFile
from .sketch import PreloadCustomSketchRule

if TYPE_CHECKING:
    from . import autotvm
    from . import autotvm as template  # its name in earlier versions
    from . import scheduler as task_scheduler
    from .cluster import RPCRunner, request_remote
    from .core.device import nd
    from .core.device.build import build, lower
    from .core.device.export import load_module
    from .core.device.nd import cpu, device, gpu
    from .core.tasks.networks import extract_tasks
    from .layout.rewrite import rewrite_layout_from_state
    from .policy.empty_policy import EmptyPolicy
    from .policy.register_target import register_target
    from .records.dispatch import ApplyHistoryBest, DispatchContext, load_history_best
    from .scheduler import LogEstimatedLatency, PrintTableInfo, TaskScheduler, TaskSchedulerCallback
else:
    __getattr__, __dir__ = later(__name__)

__version__ = version_of("ansor")

__all__ = [
    "AnsorError", "ApplyHistoryBest", "BackendError", "BudgetError", "BuildResult", "ComputeDAG", "DispatchContext",
    "EmptyPolicy", "ExportError", "HardwareParams", "JournalError", "LayoutRewriteOption", "LocalBuilder",
    "LocalRPCMeasureContext", "LocalRunner", "LogEstimatedLatency", "MeasureCallback", "MeasureError", "MeasureErrorNo",
    "MeasureInput", "MeasureResult", "NoRecordError", "PreloadCustomSketchRule", "PreloadMeasuredStates",
    "PrintTableInfo", "ProgramMeasurer", "PythonBasedMeasureCallback", "PythonBasedModel", "RPCRunner", "RandomModel",
    "RecordReader", "RecordToFile", "SearchTask", "SketchPolicy", "Target", "TaskError", "TaskScheduler",
    "TaskSchedulerCallback", "TuningOptions", "XGBModel", "autotvm", "build", "cpu", "device", "distill_record_file",
    "dump_record_to_string", "extensions", "extract_tasks", "gpu", "load_best_record", "load_history_best",
    "load_module", "load_record_from_string", "load_records", "lower", "make_workload_key", "nd", "register_backend",
    "register_target", "register_workload", "register_workload_tensors", "request_remote", "rewrite_layout_from_state",
    "save_records", "target", "task_scheduler", "template", "workload_key_to_tensors",
]  # fmt: skip

TASK_ACTIONS.provide(Actions)
