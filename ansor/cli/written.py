"""Files that commands write: a typing error makes no folder, and nothing that is there is lost."""

from __future__ import annotations

from pathlib import Path

from te_lite.errors import require

from ..core.errors import JournalError, TaskError
from ..records.journal import require_log


def checked_log(text: str) -> Path:
    """The file of `--log`, new or a log to go on with.

    Raises JournalError when its folder is not there, and for a file that is no log.
    """
    path = Path(text)
    require_folder(path)
    require_log(path)
    return path


def stopped_text(log: Path) -> str:
    """What a command says that Ctrl-C stopped."""
    there = log.is_file() and log.stat().st_size > 0
    return f"stopped; everything measured is in {log}" if there else "stopped; nothing was measured yet"


def require_folder(path: Path) -> None:
    """Raise JournalError for a file in a folder that is not there, which may be a typing error."""
    require(path.parent.is_dir(), JournalError, f"{path}: cannot be written", f"there is no folder {path.parent}")


def require_like(path: Path, head: str, what: str) -> None:
    """Raise TaskError for a file that is there and does not begin as what is written over it: it is no such thing."""
    there = path.read_bytes()[: len(head)] if path.is_file() else b""
    law = f"this file is there, and is no {what}; name another one"
    require(there in (b"", head.encode()), TaskError, "--output", law, got=str(path))


def require_picture(path: str) -> None:
    """Raise JournalError for a folder that is not there, TaskError for a file that is there and no picture or page."""
    require_folder(Path(path))
    page = path.endswith(".html")
    require_like(Path(path), "<!DOCTYPE html>" if page else "<svg", "page" if page else "picture")


def write_picture(path: str, drawing: str) -> None:
    """Write a picture, and say so.  Raises TaskError where it cannot be written."""
    try:
        Path(path).write_text(drawing, encoding="utf-8")
    except OSError as error:
        raise TaskError(f"{path}: the picture cannot be written, {error.strerror}") from error
    print(f"the picture is in {path}")
