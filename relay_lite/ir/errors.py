"""What the graph front end refuses."""

from __future__ import annotations

from te_lite.errors import TeError


class GraphError(TeError):
    """A graph that cannot be built, read, rewritten or run: a wrong shape, an unknown operator or attribute ..."""
