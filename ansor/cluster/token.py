"""The key of a fleet: a secret that its tracker makes, and that everybody who takes part must have.

The engine runs what it is sent, so whoever has the token can run code as the owner of every machine of the fleet (see
docs/security.md).  It is in the file `ANSOR_FLEET_TOKEN_FILE`, or the text `ANSOR_FLEET_TOKEN`.
"""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

from te_lite import environment
from te_lite.errors import require

from ..core.errors import BackendError
from ..core.files.private_files import private_folder, require_private

BYTES = 32
LEAST_CHARACTERS = 32
SUBJECT = "fleet: the token"


def token_place() -> str:
    """Where the token of this process comes from, in words."""
    return "ANSOR_FLEET_TOKEN" if environment.ANSOR_FLEET_TOKEN.text else str(_file())


def read_token() -> str:
    """The token of this process.

    Raises BackendError when there is none, when it is no token, and when others could read or change its file.
    """
    text = environment.ANSOR_FLEET_TOKEN.text or _from_file(_file())
    law = f"{LEAST_CHARACTERS} letters or digits are needed"
    require(len(text) >= LEAST_CHARACTERS and text.isascii() and text.isalnum(), BackendError, SUBJECT,
            f"{law}; see {token_place()}", characters=len(text))  # fmt: skip
    return text


def ensure_token() -> None:
    """Make the file, unless there is one or the token is in the environment: 0600, in a folder of mode 0700.

    Raises BackendError as `read_token`, and when the file cannot be made.
    """
    path = _file()
    if not environment.ANSOR_FLEET_TOKEN.text and not path.exists():
        try:
            private_folder(path.parent, BackendError, "fleet: the folder of the token")
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(secrets.token_hex(BYTES))
        except OSError as error:
            raise BackendError(f"{SUBJECT} {path} cannot be made, {error.strerror}") from error
    read_token()


def _file() -> Path:
    return Path(environment.ANSOR_FLEET_TOKEN_FILE.text).expanduser()


def _from_file(path: Path) -> str:
    try:
        whole = path.resolve(strict=True)
        require_private(whole, BackendError, SUBJECT)
        mode = stat.S_IMODE(whole.stat().st_mode)
        law = f"others may read it, try chmod 600 {whole}"
        require(not mode & 0o077, BackendError, f"{SUBJECT} {whole}", law, mode=oct(mode))
        return whole.read_text(encoding="ascii").strip()
    except FileNotFoundError as error:
        law = "copy that of the tracker there, or name it in ANSOR_FLEET_TOKEN_FILE or ANSOR_FLEET_TOKEN"
        raise BackendError(f"{SUBJECT} {path} is missing; {law}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise BackendError(f"{SUBJECT} {path} cannot be read ({type(error).__name__})") from error
