"""The command `ansor vta`.

Law: reads arguments and prints; the work is done elsewhere.
"""

from .explore_command import explore_machines as explore
from .roofline_command import roofline
from .timeline_command import timeline
from .tune_command import tune

__all__ = ["explore", "roofline", "timeline", "tune"]
