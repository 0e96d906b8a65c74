"""Many C programs in one file, compiled once and run one after the other."""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

import codegen_c
from codegen_c.compile import FLAGS, compiler_command, processor_flags
from codegen_c.emit import emit
from te_lite import LoweredFunc
from tests.compiled_soon import soon

HOST = codegen_c.host_options()
VARIANTS = (
    HOST,
    replace(HOST, masks=False, stack_bytes=0, registers=3),
    replace(HOST, masks=False, vector_bytes=16, registers=12),
    replace(HOST, masks=False, vector_bytes=32, registers=0),
)
"""Vectors, registers and scratch memory as on other processors."""


def text_of(func: LoweredFunc, variant: int) -> str:
    """The C text.  Raises EmitError."""
    return emit(func, options=VARIANTS[variant % len(VARIANTS)])


def compile_texts(texts: Sequence[tuple[str, str]], folder: Path, optimised: bool) -> list[ctypes.CDLL | str]:
    """The library of each `(name, text)`, or what the compiler says.

    All texts share a library, their helper functions renamed; where the compiler refuses one, each has its own.
    Not `optimised`, they are compiled with -O1, which is faster.
    """
    whole = _library("\n".join(_apart(name, text) for name, text in texts), folder / "all", optimised)
    if not isinstance(whole, str):
        return [whole] * len(texts)
    return [_library(text, folder / name, optimised) for name, text in texts]


def _apart(name: str, text: str) -> str:
    """A text whose static functions have names of their own."""
    own = set(re.findall(r"^static\b[^(\n]*?(\w+)\(", text, re.MULTILINE))
    return re.sub(r"\b(\w+)\b(?=\()", lambda m: f"{m[1]}_of_{name}" if m[1] in own else m[1], text)


def _library(text: str, stem: Path, optimised: bool) -> ctypes.CDLL | str:
    source, made = stem.with_suffix(".c"), stem.with_suffix(".so")
    source.write_text(text)
    flags = FLAGS if optimised else soon(FLAGS)
    known = processor_flags(compiler_command())
    command = [*compiler_command(), *flags, str(source), "-o", str(made), "-lm", *known]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return ctypes.CDLL(str(made))
    lines = [x for x in done.stderr.splitlines() if "error" in x] or done.stderr.splitlines() or ["no message"]
    return lines[0].replace(f"{source}:", "")


def call(library: ctypes.CDLL, name: str, arrays: Sequence[np.ndarray]) -> None:
    """Run a program once."""
    entry = library[name]
    entry.restype, entry.argtypes = None, [ctypes.c_void_p] * len(arrays)
    entry(*[a.ctypes.data for a in arrays])
