"""A target of one's own: `toy`, whose device is the interpreter of the loop language.

A backend says what a program is (`source`, `build`) and what runs it (`open`).  With that its programs are searched,
measured and checked, and whole networks run.  Nothing is compiled here: a built program is its loops as JSON.
docs/replacing_a_part.md ("Adding a backend") puts it to use.
"""

import json
import time
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path

import numpy as np

from ansor.core.device.backend import Backend
from te_lite.expr import expr
from te_lite.loops import stmt
from te_lite.meaning import interp

NODES = {name: node for module in (expr, stmt) for name, node in vars(module).items() if isinstance(node, type)}


def encode(node, seen):
    """A tree of loops as lists; variables and buffers are numbered, for two of them are never the same by name."""
    if isinstance(node, tuple):
        return ["tuple", *[encode(x, seen) for x in node]]
    if isinstance(node, Enum):
        return [type(node).__name__, node.value]
    if not is_dataclass(node):
        return node
    if id(node) in seen:
        return ["seen", seen[id(node)]]
    made = [type(node).__name__, *[encode(getattr(node, f.name), seen) for f in fields(node)]]
    seen[id(node)] = len(seen)
    return made


def decode(data, seen):
    """What `encode` was given; `seen` is a list here."""
    match data:
        case ["seen", number]:
            return seen[number]
        case ["tuple", *rest]:
            return tuple([decode(x, seen) for x in rest])
        case [name, *rest]:
            made = NODES[name](*[decode(x, seen) for x in rest])
            seen += [made] if is_dataclass(made) else []
            return made
    return data


class ToyProgram:
    def __init__(self, func):
        self.func = func

    def run(self, args):
        interp.run(self.func, args)

    def time(self, args, number, repeat, min_repeat_ms, flush, best):
        start = time.perf_counter()
        for _ in range(number * repeat):
            self.run(args)
        return [(time.perf_counter() - start) / (number * repeat)] * repeat


class ToyDevice:
    def put(self, array):
        return np.array(array, order="C")

    def write(self, handle, array):
        handle[...] = array

    def get(self, handle):
        return handle

    def load(self, directory):
        return ToyProgram(decode(json.loads((Path(directory) / "loops.json").read_text()), []))


class ToyBackend(Backend):
    kind = "toy"

    def source(self, func, target):
        return str(func)

    def build(self, func, target, directory):
        (Path(directory) / "loops.json").write_text(json.dumps(encode(func, {})))

    def open(self, index):
        return ToyDevice()


BACKEND = ToyBackend()
