"""Exported networks that were changed: the manifest (types, sizes, places, names) and the file of parameters.

`python -m tests.relay_lite.hostile_exports FOLDER SCRATCH FIRST COUNT` loads changed copies of the network in FOLDER
and puts them on the device, and prints a line for each that gave neither a network nor a refusal of one sentence.
"""

from __future__ import annotations

import hashlib
import io
import json
import random
import shutil
import struct
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

import ansor
from ansor.core.files.sealed_folder import DIGEST, MANIFEST, signed
from relay_lite.ir.errors import GraphError
from relay_lite.runtime.files import PARAMS
from relay_lite.runtime.library import load
from tests.relay_lite.promised import limit_process, verdict

VALUES = (None, True, -1, 0, 1, 7, 1.5, float("nan"), 1 << 31, 1 << 40, 1 << 62, 1 << 64, 10**30, -(1 << 63), "", "x",
          "7", "../x", "/etc/passwd", "x" * 5000, "\0", [], {}, [1], [[]], {"a": 1})  # fmt: skip


def paths(value: Any, above: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The places of all values in JSON."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [above, *[p for key, below in inner for p in paths(below, (*above, key))]]


def changed_json(rng: random.Random, whole: Any) -> Any:
    """With one to three values replaced, removed, doubled, or swapped with another."""
    whole = json.loads(json.dumps(whole))
    for _ in range(rng.choice((1, 1, 2, 3))):
        place = rng.choice([p for p in paths(whole) if p])
        holder: Any = whole
        for key in place[:-1]:
            holder = holder[key]
        value = holder[place[-1]]
        how = rng.random()
        if how < 0.6:
            near = [value + 1, value - 1, -value, value * 2, float(value)] if type(value) is int else []
            holder[place[-1]] = rng.choice((*VALUES, *near))
        elif how < 0.7:
            del holder[place[-1]]
        elif isinstance(holder, list):
            holder.insert(rng.randrange(len(holder) + 1), rng.choice(holder))
        else:
            holder[rng.choice(("more", *holder))] = value
    return whole


def arrays_file(rng: random.Random, whole: bytes) -> bytes:
    """The parameters with a header that lies, packed, cut, doubled, or with bytes changed."""
    with zipfile.ZipFile(io.BytesIO(whole)) as stored:
        entries = {name: stored.read(name) for name in stored.namelist()}
    name = rng.choice(sorted(entries))
    how = rng.choice(("header", "bomb", "cut", "bytes", "object", "names", "twice"))
    if how == "cut":
        return whole[: rng.randrange(len(whole))]
    if how == "bytes":
        spoiled = bytearray(whole)
        for _ in range(rng.choice((1, 3, 30))):
            spoiled[rng.randrange(len(whole))] = rng.randrange(256)
        return bytes(spoiled)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED if how == "bomb" else zipfile.ZIP_STORED) as stored:
        for entry, data in entries.items():
            if entry == name:
                data = _lying(rng, how, data)
            stored.writestr(f"{entry[:-4]}x" if how == "names" and entry == name else entry, data)
            if how == "twice" and entry == name:
                stored.writestr(entry, data)
    return out.getvalue()


def _lying(rng: random.Random, how: str, data: bytes) -> bytes:
    if how == "bomb":
        return data + bytes(1 << 22)
    if how == "object":
        text = io.BytesIO()
        np.save(text, np.array([{}], object), allow_pickle=True)
        return text.getvalue()
    if how != "header":
        return data
    shape = rng.choice(("(1152921504606846976,)", "(-1,)", "(2, 3, 4)", "()", "(1e3,)", "(" + "1, " * 99 + ")", "x"))
    kind = rng.choice(("'<f4'", "'<f8'", "'|O'", "'<U9999999'", "'V99999999999'", "7", "[('a', '<f4')]"))
    text = f"{{'descr': {kind}, 'fortran_order': {rng.choice(('False', 'True', '3'))}, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data[128:]


def sign(facts: dict[str, Any]) -> dict[str, Any]:
    """The manifest with the digest that its writer would give it: whoever attacks can do that too."""
    return signed({k: v for k, v in facts.items() if k != DIGEST})


def relisted(facts: dict[str, Any], name: str, data: bytes) -> dict[str, Any]:
    listed = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    return sign({**facts, "files": {**facts["files"], name: listed}})


def spoil(rng: random.Random, folder: Path) -> bool:
    """Change the folder; whether its digests still agree."""
    manifest = folder / MANIFEST
    facts = json.loads(manifest.read_text())
    if rng.random() < 0.3:
        place = folder / PARAMS
        data = arrays_file(rng, place.read_bytes())
        place.write_bytes(data)
        manifest.write_text(json.dumps(relisted(facts, PARAMS, data)))
        return True
    changed = changed_json(rng, facts)
    honest = rng.random() < 0.8
    manifest.write_text(json.dumps(sign(changed) if honest and isinstance(changed, dict) else changed))
    return honest or changed == facts


def main(folder: Path, scratch: Path, first: int, count: int) -> None:
    """Load `count` changed copies."""
    load(folder)["default"](ansor.device("c"))
    limit_process()
    good = 0
    for seed in range(first, first + count):
        place = scratch / str(seed)
        shutil.copytree(folder, place)
        agrees = spoil(random.Random(seed), place)
        wrong = verdict(lambda place=place: load(place)["default"](ansor.device("c")))
        if wrong is None and not agrees:
            wrong = None if _refused(place) else "its digests do not agree, and it was loaded"
        if wrong is not None:
            print(f"seed {seed}: {wrong}", flush=True)
        good += wrong is None
        shutil.rmtree(place)
    print(f"{good} of {count} as promised")


def _refused(place: Path) -> bool:
    try:
        load(place)
    except GraphError:
        return True
    return False


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
