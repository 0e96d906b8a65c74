"""Parameters as bytes and back: NumPy's `.npz`, which holds arrays and nothing that runs.

Path("model.params").write_bytes(relay.save_param_dict(params))
params = relay.load_param_dict(Path("model.params").read_bytes())
"""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Mapping
from math import prod
from typing import Any, BinaryIO

import numpy as np

from ansor.core.values.checks import require_tensor
from te_lite.errors import require
from te_lite.expr.dtype import STORED
from te_lite.expr.expr import DTYPES

from .errors import GraphError
from .module import host_array
from .nodes import Array


def save_param_dict(params: Mapping[str, Any]) -> bytes:
    """Arrays by name as bytes; values are NumPy arrays or array objects with `numpy()`."""
    file = io.BytesIO()
    write_arrays(file, {name: host_array(value) for name, value in params.items()})
    return file.getvalue()


def write_arrays(file: BinaryIO, arrays: Mapping[str, Array]) -> None:
    """Write an `.npz` file.  Any name will do, which `numpy.savez` with its keyword arguments cannot say.

    NumPy's format has no word for the stored dtypes: they are written as bits, and the comment of an entry names them.
    """
    with zipfile.ZipFile(file, "w") as stored:
        for name, array in arrays.items():
            info = zipfile.ZipInfo(f"{name}.npy")
            if str(array.dtype) in STORED:
                info.comment, array = str(array.dtype).encode(), array.view(f"u{array.itemsize}")
            with stored.open(info, "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, array, allow_pickle=False)


def load_param_dict(data: bytes) -> dict[str, Array]:
    """The arrays that `save_param_dict` wrote.  Raises GraphError for other bytes."""
    return read_arrays(io.BytesIO(data))


def read_arrays(file: BinaryIO) -> dict[str, Array]:
    """The arrays that `write_arrays` wrote.

    The header of each is read before its data: it must be as long as it says, and no longer than a tensor may be.
    Raises GraphError, in one sentence, for another file.
    """
    try:
        with zipfile.ZipFile(file) as stored:
            names = stored.namelist()
            require(len(set(names)) == len(names), GraphError, "parameters", "the names must differ", names=names)
            return {info.filename.removesuffix(".npy"): _array(stored, info) for info in stored.infolist()}
    except (zipfile.BadZipFile, zlib.error, OSError, EOFError, ValueError, KeyError, struct.error, OverflowError,
            NotImplementedError, RuntimeError, SyntaxError, TypeError) as error:  # fmt: skip
        reason = " ".join(str(error).split())
        raise GraphError(f"parameters: the bytes are not those of save_param_dict, {reason[:200]}") from error


def _array(stored: zipfile.ZipFile, info: zipfile.ZipInfo) -> Array:
    """Packed entries are refused: nobody knows how long they are before they are unpacked."""
    subject = f"parameter {info.filename[:200]!r}"
    require(info.compress_type == zipfile.ZIP_STORED, GraphError, subject, "it must be stored, not packed")
    with stored.open(info) as entry:
        version = np.lib.format.read_magic(entry)
        read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}.get(version)
        require(read, GraphError, subject, "its format must be 1.0 or 2.0", got=version)
        assert read is not None
        shape, columns, dtype = read(entry)
        require(str(dtype) in DTYPES and dtype.isnative, GraphError, subject, f"dtypes are {', '.join(DTYPES)}",
                dtype=str(dtype))  # fmt: skip
        require(min(shape, default=0) >= 0, GraphError, subject, "extents must not be negative", shape=shape)
        require_tensor(shape, str(dtype), subject)
        law = "it must be as long as its header says"
        length = prod(shape) * dtype.itemsize
        require(entry.tell() + length == info.file_size, GraphError, subject, law, shape=shape, bytes=info.file_size)
        values = np.frombuffer(entry.read(), dtype)
        require(values.nbytes == length, GraphError, subject, law, shape=shape, bytes=values.nbytes)
    made: Array = values.reshape(shape, order="F" if columns else "C").copy()
    return made if not info.comment else _named(made, info.comment.decode("ascii", "replace"), subject)


def _named(bits: Array, dtype: str, subject: str) -> Array:
    """Bits as an array of the stored dtype that a comment names."""
    known = dtype in STORED and str(bits.dtype) == f"uint{8 * np.dtype(dtype).itemsize}"
    require(known, GraphError, subject, f"its comment must name a dtype of {', '.join(STORED)}", comment=dtype[:50])
    made: Array = bits.view(dtype)
    return made
