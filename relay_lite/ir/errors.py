"""What the graph front end refuses; a target that runs networks refuses under the same name."""

from __future__ import annotations

from ansor.core.errors import GraphError

__all__ = ["GraphError"]
