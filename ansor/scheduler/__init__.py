"""The task scheduler: several tasks share one budget of measurements.

Law: divides a budget; it knows no sketch and no program.
"""

from ..policy.protocols import RoundPolicy
from .callbacks import LogEstimatedLatency, PrintTableInfo, TaskSchedulerCallback
from .groups import derive_similarity_tag
from .policies import make_search_policies
from .task_scheduler import TaskScheduler

__all__ = [
    "LogEstimatedLatency", "PrintTableInfo", "RoundPolicy", "TaskScheduler", "TaskSchedulerCallback",
    "derive_similarity_tag", "make_search_policies",
]  # fmt: skip
