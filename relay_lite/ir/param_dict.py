"""Parameters as bytes and back: NumPy's `.npz`, which holds arrays and nothing that runs.

Path("model.params").write_bytes(relay.save_param_dict(params))
params = relay.load_param_dict(Path("model.params").read_bytes())
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np

from .errors import GraphError
from .host_arrays import host_array
from .nodes import Array


def save_param_dict(params: Mapping[str, Any]) -> bytes:
    """Arrays by name as bytes; values are NumPy arrays or array objects with `numpy()`."""
    file = io.BytesIO()
    write_arrays(file, {name: host_array(value) for name, value in params.items()})
    return file.getvalue()


def write_arrays(file: BinaryIO, arrays: Mapping[str, Array]) -> None:
    """Write an `.npz` file.  Any name will do, which `numpy.savez` with its keyword arguments cannot say."""
    with zipfile.ZipFile(file, "w") as stored:
        for name, array in arrays.items():
            with stored.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, array, allow_pickle=False)


def load_param_dict(data: bytes) -> dict[str, Array]:
    """The arrays that `save_param_dict` wrote.  Raises GraphError for other bytes."""
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}
    except (OSError, ValueError, EOFError, AttributeError, zipfile.BadZipFile) as error:
        raise GraphError(f"parameters: the bytes are not those of save_param_dict, {error}") from error
