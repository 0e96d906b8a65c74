"""A compiled network as a sealed folder: a manifest, sources, machine code, and the parameters as one `.npz` file.

Nothing in it is executed by reading it, and its machine code runs when the network is put on a device.
"""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from ansor.core.files.sealed_folder import FolderKind, read_sealed_folder, write_sealed_folder

from ..ir.errors import GraphError
from ..ir.nodes import Array
from ..ir.param_dict import read_arrays, write_arrays

PARAMS, SOURCES, BINARIES = "params.npz", "source", "binary"
NETWORK = FolderKind("relay_lite network", 2, "network", GraphError, (PARAMS,))


@dataclass(frozen=True)
class NetworkFiles:
    """`facts` is JSON; sources are texts and binaries bytes by file name; `arrays` the parameters by name."""

    facts: Mapping[str, Any]
    sources: Mapping[str, str]
    binaries: Mapping[str, bytes]
    arrays: Mapping[str, Array]


def write_folder(path: str | os.PathLike[str], files: NetworkFiles) -> None:
    """Write all files into a new or empty folder.  Raises GraphError when it is not empty, or cannot be written."""
    params = io.BytesIO()
    write_arrays(params, files.arrays)
    sources = {f"{SOURCES}/{name}": text.encode() for name, text in files.sources.items()}
    binaries = {f"{BINARIES}/{name}": code for name, code in files.binaries.items()}
    write_sealed_folder(NETWORK, path, {**sources, **binaries, PARAMS: params.getvalue()}, files.facts)


def read_folder(path: str | os.PathLike[str]) -> NetworkFiles:
    """Read what `write_folder` wrote.

    Raises GraphError, in one sentence, for a folder without a manifest, one of another version, and a file that is
    missing or is not what was written.
    """
    facts, found = read_sealed_folder(NETWORK, path)
    subject = f"network {os.fspath(path)}"
    try:
        sources = {PurePosixPath(n).name: d.decode() for n, d in found.items() if n.startswith(f"{SOURCES}/")}
        arrays = read_arrays(io.BytesIO(found[PARAMS]))
    except UnicodeDecodeError as error:
        raise GraphError(f"{subject}: a source is no text, {error}") from error
    except GraphError as error:
        raise GraphError(f"{subject}: {PARAMS} cannot be read, {error}") from error
    binaries = {PurePosixPath(n).name: d for n, d in found.items() if n.startswith(f"{BINARIES}/")}
    return NetworkFiles(facts, sources, binaries, arrays)
