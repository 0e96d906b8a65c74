"""What goes over the network: one JSON object and named files, as bytes.

    length of the JSON text (4 bytes, big endian) | JSON text | the files, one after the other

The object says under "files" what the files are called and how long they are.  Nothing in a message is ever executed or
unpickled, so hosts may have another release of Python than the driver.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

from te_lite.errors import require

from ..core.errors import MeasureError

_HEAD = struct.Struct(">I")
Files = dict[str, bytes]


def pack(header: Mapping[str, Any], files: Mapping[str, bytes] | None = None) -> bytes:
    """The message of an object and files; the object must not have a key "files" of its own."""
    sizes = [[name, len(data)] for name, data in (files or {}).items()]
    text = json.dumps({**header, "files": sizes}, allow_nan=False).encode()
    return b"".join([_HEAD.pack(len(text)), text, *(files or {}).values()])


def unpack(message: bytes) -> tuple[dict[str, Any], Files]:
    """The object, without "files", and the files.  Raises MeasureError for bytes that are no message."""
    try:
        (length,) = _HEAD.unpack_from(message)
        start = _HEAD.size + length
        header: Any = json.loads(message[_HEAD.size : start])
        files: Files = {}
        for name, size in header.pop("files"):
            require(isinstance(name, str) and type(size) is int and size >= 0, MeasureError, "message", "bad file list")
            files[name] = message[start : start + size]
            start += size
    except (struct.error, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise MeasureError(f"message: it cannot be read ({type(error).__name__})") from error
    law = "its length must be what it says"
    require(start == len(message), MeasureError, "message", law, says=start, length=len(message))
    return header, files
