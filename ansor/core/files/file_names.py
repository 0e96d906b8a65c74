"""Names of files as users give them: a text or a path of the standard library, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

from te_lite.errors import TeError, require


def path_of(name: object, error: type[TeError]) -> Path:
    """The path of a name.  Raises `error` for what is none: a number, bytes, an object, a text with a zero in it."""
    ok = isinstance(name, str | os.PathLike) and isinstance(text := os.fspath(name), str) and "\0" not in text
    require(ok, error, "name of a file", "a text or a path is needed, such as 'log.json'", got=name)
    return Path(text)
