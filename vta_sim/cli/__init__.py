"""The command `ansor vta`.

Law: reads arguments and prints; the work is done elsewhere.
"""

from .timeline_command import timeline
from .tune_command import tune

__all__ = ["timeline", "tune"]
