"""A `.pt2` file as plain values: a ZIP of JSON and raw weights, read without torch and without pickle.

The layout is that of torch 2.8 and later (`torch.export.save`): `models/model.json` has the graph, `data/weights` and
`data/constants` have one file a tensor and a JSON file that says where each is.  Entries that are pickled (sample
inputs, tensors that are not plain) are never opened.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any
from zipfile import BadZipFile, ZipFile

import numpy as np

from ansor.core.values.checks import require_tensor, tensor_limit
from ansor.core.values.json_values import items, record, size, text
from te_lite.errors import TeError, require
from te_lite.expr.expr import SizeVar

from ...ir.errors import GraphError
from ...ir.extents import greatest
from ...ir.nodes import Array
from .program import STATIC, SUBJECT, WRITES_NOTHING, AtenGraph, AtenNode, Ref, TensorInfo, refs
from .sizes import extent_of, sizes_of

DTYPES = {
    1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 6: "float16", 7: "float32", 8: "float64", 12: "bool",
    13: "bfloat16", 28: "uint16", 29: "float8_e4m3fn", 30: "float8_e5m2", 31: "float8_e4m3fnuz", 32: "float8_e5m2fnuz",
    34: "uint32", 35: "uint64",
}  # fmt: skip
"""The element types of the file format, in the names of NumPy."""
SCHEMA = 8
MODEL, WEIGHTS, CONSTANTS = "models/model.json", "data/weights/", "data/constants/"
PLAIN = ("as_bool", "as_int", "as_float", "as_string", "as_ints", "as_floats", "as_bools", "as_strings")
IGNORED = ("as_memory_format", "as_layout", "as_device")
"""Where a tensor lies and in which order: not what it is."""


def read_archive(path: str | os.PathLike[str]) -> AtenGraph:
    """The program in a `.pt2` file of torch 2.8 or later.

    Raises GraphError, in one sentence, for a file that cannot be read, an older format, unbounded extents, weights
    that are pickled, and programs that write to their inputs or buffers.
    """
    subject = f"{SUBJECT} {os.fspath(path)}"
    try:
        with ZipFile(path) as archive:
            return _Archive(archive, subject).graph()
    except (OSError, BadZipFile, KeyError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise GraphError(f"{subject}: it must be readable, got {type(error).__name__}: {reason}") from error
    except TeError as error:
        raise GraphError(str(error) if str(error).startswith(subject) else f"{subject}: {error}") from error


class _Archive:
    """The entries of one file; all of them lie in a folder that is called like the file was."""

    def __init__(self, archive: ZipFile, subject: str) -> None:
        self.zip, self.subject = archive, subject
        law = "an archive of torch 2.8 or later is needed, which torch.export.save writes"
        found = [name for name in archive.namelist() if name.endswith("/" + MODEL)]
        require(len(found) == 1, GraphError, subject, law, models=found)
        self.root = found[0].removesuffix(MODEL)

    def json(self, name: str) -> Mapping[str, Any]:
        info = self.zip.getinfo(self.root + name)
        law = "its JSON may be as long as a tensor (ANSOR_TENSOR_BYTES)"
        require(info.file_size <= tensor_limit(), GraphError, self.subject, law, bytes=info.file_size)
        return record(json.loads(self.zip.read(info)), (), name)

    def graph(self) -> AtenGraph:
        order = self.zip.read(self.root + "byteorder")
        require(order == b"little", GraphError, self.subject, "its byte order must be little", got=order)
        model = self.json(MODEL)
        version = record(model["schema_version"], ("major",), "schema_version")["major"]
        require(version == SCHEMA, GraphError, self.subject, f"schemas of version {SCHEMA} are read", version=version)
        module = record(model["graph_module"], ("graph", "signature"), "graph_module")
        graph = record(module["graph"], ("inputs", "outputs", "nodes", "tensor_values"), "graph")
        inputs, stored = self.signature(record(module["signature"], ("input_specs", "output_specs"), "signature"))
        sizes = _sizes(model)
        known = {n: _size(v, n, sizes) for n, v in record(graph.get("sym_int_values", {}), (), "sizes").items()}
        nodes = [
            _node(record(n, ("target", "inputs", "outputs"), "node"), known) for n in items(graph["nodes"], "nodes")
        ]
        tensors = {n: _info(v, n, sizes) for n, v in record(graph["tensor_values"], (), "tensors").items()}
        outputs = tuple([name for one in items(graph["outputs"], "outputs") for name in refs(_argument(one))])
        return AtenGraph(tuple(inputs), self.weights(stored), tuple(nodes), outputs, tensors)

    def signature(self, signature: Mapping[str, Any]) -> tuple[list[str], dict[str, tuple[str, str]]]:
        """The inputs, and of every other tensor that the graph is given its folder and its name there."""
        kinds = [kind for spec in signature["output_specs"] for kind in record(spec, (), "output")]
        require(set(kinds) <= {"user_output"}, GraphError, self.subject, WRITES_NOTHING, outputs=sorted(set(kinds)))
        inputs, stored = [], {}
        for spec in items(signature["input_specs"], "inputs"):
            ((kind, value),) = record(spec, (), "input").items()
            match kind:
                case "user_input":
                    inputs += list(refs(_argument(value["arg"])))
                case "parameter" | "buffer":
                    kept = kind == "parameter" or value["persistent"]
                    stored[value["arg"]["name"]] = (WEIGHTS if kept else CONSTANTS, value[f"{kind}_name"])
                case "tensor_constant":
                    stored[value["arg"]["name"]] = (CONSTANTS, value["tensor_constant_name"])
                case _:
                    raise GraphError(f"{self.subject}: its inputs must be tensors, got a {kind}")
        return inputs, stored

    def weights(self, stored: Mapping[str, tuple[str, str]]) -> dict[str, Array]:
        configs = {
            WEIGHTS: self.json(WEIGHTS + "model_weights_config.json")["config"],
            CONSTANTS: self.json(CONSTANTS + "model_constants_config.json")["config"],
        }
        return {name: self.tensor(folder, at, configs[folder]) for name, (folder, at) in stored.items()}

    def tensor(self, folder: str, name: str, config: Mapping[str, Any]) -> Array:
        """A weight: its storage may be larger than what it shows of it."""
        entry = record(config[name], ("path_name", "use_pickle", "tensor_meta"), name)
        law = "a plain tensor is needed; this one is pickled"
        require(entry["use_pickle"] is False, GraphError, f"weight {name}", law)
        meta = entry["tensor_meta"]
        info, first = _info(meta, name, {}), _size(meta["storage_offset"], name, {})
        dtype = np.dtype(info.dtype)
        place = self.zip.getinfo(self.root + folder + text(entry["path_name"], "path_name"))
        require_tensor((place.file_size,), "uint8", f"weight {name}")
        last = first + sum((d - 1) * s for d, s in zip(info.shape, info.strides, strict=True))
        fits = 0 in info.shape or (last + 1) * dtype.itemsize <= place.file_size
        require(fits, GraphError, f"weight {name}", "its file must hold it", bytes=place.file_size, shape=info.shape)
        if 0 in info.shape:
            return np.zeros(info.shape, dtype)
        flat = np.frombuffer(self.zip.read(place), dtype, offset=first * dtype.itemsize)
        steps = [s * dtype.itemsize for s in info.strides]
        return np.array(np.lib.stride_tricks.as_strided(flat, info.shape, steps, writeable=False), order="C")


def _sizes(model: Mapping[str, Any]) -> dict[str, SizeVar]:
    """The symbols that the program bounds, as sizes."""
    ranges = record(model.get("range_constraints", {}), (), "range_constraints")
    found = {name: record(ends, ("min_val", "max_val"), name) for name, ends in ranges.items()}
    return sizes_of({name: (ends["min_val"], ends["max_val"]) for name, ends in found.items()})


def _info(value: Any, name: str, sizes: Mapping[str, SizeVar]) -> TensorInfo:
    meta = record(value, ("dtype", "sizes", "strides"), f"tensor {name}")
    known = meta["dtype"] in DTYPES
    require(known, GraphError, f"tensor {name}", f"dtypes are {', '.join(DTYPES.values())}", number=meta["dtype"])
    shape, strides = ([_size(d, name, sizes) for d in items(meta[key], key)] for key in ("sizes", "strides"))
    require(len(shape) == len(strides), GraphError, f"tensor {name}", "it has one stride an axis", strides=strides)
    require_tensor(greatest(shape), DTYPES[meta["dtype"]], f"tensor {name}")
    return TensorInfo(tuple(shape), DTYPES[meta["dtype"]], tuple(strides))


def _size(value: Any, name: str, sizes: Mapping[str, SizeVar]) -> Any:
    """An integer, or an open extent."""
    found, what = record(value, (), f"tensor {name}"), f"tensor {name}"
    if "as_expr" in found:
        return extent_of(text(record(found["as_expr"], ("expr_str",), what)["expr_str"], "extent"), sizes, what)
    require(found.get("as_int") is not None, GraphError, what, STATIC, extent=value)
    return size(found["as_int"], what)


def _node(node: Mapping[str, Any], known: Mapping[str, Any]) -> AtenNode:
    op = text(node["target"], "target").removeprefix("torch.ops.")
    given = [record(one, ("name", "arg"), op) for one in items(node["inputs"], "inputs")]
    outputs: list[str | None] = []
    for one in items(node["outputs"], "outputs"):
        found = _argument(one, op, known)
        outputs += [r.name if isinstance(r, Ref) else None for r in (found if isinstance(found, tuple) else (found,))]
    name = text(node.get("name") or next((o for o in outputs if o), op), "name")
    return AtenNode(op, name, {text(a["name"], "name"): _argument(a["arg"], op, known) for a in given}, tuple(outputs))


def _argument(value: Any, op: str = "argument", known: Mapping[str, Any] = MappingProxyType({})) -> Any:
    """The value of an argument: a union that names its kind; `known` has that of each size by name.

    Raises GraphError for kinds that no operator here has.
    """
    ((kind, found),) = record(value, (), op).items()
    match kind:
        case "as_none":
            return None
        case "as_tensor":
            return Ref(text(found["name"], "name"))
        case "as_tensors":
            return tuple([Ref(text(t["name"], "name")) for t in found])
        case "as_optional_tensor":
            return _argument(found, op)
        case "as_optional_tensors":
            return tuple([_argument(t, op) for t in found])
        case "as_sym_int":
            name = found.get("as_name")
            require("as_int" in found or name in known, GraphError, op, STATIC, size=name)
            return found["as_int"] if "as_int" in found else known[name]
        case "as_sym_ints":
            return tuple([_argument({"as_sym_int": one}, op, known) for one in found])
        case "as_scalar_type":
            return DTYPES.get(found, f"type {found}")
    require(kind in (*PLAIN, *IGNORED), GraphError, op, "this kind of argument is not supported", kind=kind)
    return None if kind in IGNORED else _number(found)


def _number(value: Any) -> Any:
    """A number; infinities and NaN are text in the file."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return tuple([_number(v) for v in value])
    special = {"Infinity": float("inf"), "-Infinity": float("-inf"), "NaN": float("nan")}
    return special.get(value, value) if isinstance(value, str) else value
