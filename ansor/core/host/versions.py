"""Which versions of packages are installed."""

from __future__ import annotations

import importlib.metadata

SOURCES = "from its sources"


def version_of(package: str) -> str:
    """The version of a package, or that it is used from its sources, where it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return SOURCES
