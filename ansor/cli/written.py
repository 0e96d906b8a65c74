"""The option `--log` of the commands that tune: a file to begin, or a log to go on with."""

from __future__ import annotations

from pathlib import Path

from te_lite.errors import require

from ..core.errors import JournalError
from ..records.journal import require_log


def checked_log(text: str) -> Path:
    """The file of a text.  Raises JournalError when its folder is not there, and for a file that is no log."""
    path = Path(text)
    require_folder(path)
    require_log(path)
    return path


def require_folder(path: Path) -> None:
    """Raise JournalError for a file in a folder that is not there, which may be a typing error."""
    require(path.parent.is_dir(), JournalError, f"{path}: cannot be written", f"there is no folder {path.parent}")
