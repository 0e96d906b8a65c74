"""The variables of the environment that are read, each with its meaning: nothing else reads the environment.

They are read when they are needed, so that a program may set them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import lru_cache

from .errors import TeError, require


@dataclass(frozen=True, slots=True)
class Variable:
    """`default` stands for a variable that is not set, or set to the empty text."""

    name: str
    meaning: str
    default: str = ""

    @property
    def text(self) -> str:
        """Its value now."""
        return os.environ.get(self.name, "") or self.default

    @property
    def positive(self) -> int | None:
        """Its value as a positive integer, of a list with commas the first; None when it is not set.

        Raises TeError for another text.
        """
        return _positive(self.name, self.text)

    @contextmanager
    def unless_set(self, value: str) -> Iterator[None]:
        """As `set_to` where it is not set; a default does not count as set."""
        with nullcontext() if os.environ.get(self.name) else self.set_to(value):
            yield

    @contextmanager
    def set_to(self, value: str) -> Iterator[None]:
        """Within, it has this value, for libraries that are loaded and processes that are started there, too."""
        before = os.environ.get(self.name)
        os.environ[self.name] = value
        try:
            yield
        finally:
            if before is None:
                os.environ.pop(self.name, None)
            else:
                os.environ[self.name] = before


@lru_cache(maxsize=64)
def _positive(name: str, text: str) -> int | None:
    """What `Variable.positive` is where the text is `text`."""
    first = text.partition(",")[0].strip()
    ok = first.isascii() and first.isdecimal() and int(first) > 0
    require(ok or not text, TeError, name, "a positive whole number is needed, or none", got=text)
    return int(first) if ok else None


TVM_NUM_THREADS = Variable("TVM_NUM_THREADS", "the number of cores that a search for target `c` counts on")
OMP_NUM_THREADS = Variable("OMP_NUM_THREADS", "the same, if that is unset; threads of compiled programs")
OMP_WAIT_POLICY = Variable("OMP_WAIT_POLICY", "whether threads of compiled programs that wait look for work or sleep")
GOMP_SPINCOUNT = Variable("GOMP_SPINCOUNT", "how often they look for work before they sleep; 1000, if both are unset")
CODEGEN_C_THREADS = Variable("CODEGEN_C_THREADS", "the number of threads written into C programs")
CODEGEN_C_CACHE = Variable("CODEGEN_C_CACHE", "the folder of compiled C libraries; one of the process, if unset")
CC = Variable("CC", "the C compiler, with options; gcc, clang or cc, if unset")
CXX = Variable("CXX", "the C++ compiler of the block emulator, with options", "g++")
CODEGEN_CUDA_CACHE = Variable(
    "CODEGEN_CUDA_CACHE", "the folder of compiled CUDA modules and the emulator; `off` keeps nothing"
)
XDG_CACHE_HOME = Variable("XDG_CACHE_HOME", "the user's cache folder, which holds `ansor`; ~/.cache, if unset")
XDG_DATA_DIRS = Variable(
    "XDG_DATA_DIRS", "folders whose `ansor/records` are read-only stores of records", "/usr/local/share:/usr/share"
)
ANSOR_EXTENSIONS = Variable(
    "ANSOR_EXTENSIONS", "the extensions of `ansor_ext` that are used: names with commas, `all` or `none`", "all"
)
ANSOR_CACHE = Variable("ANSOR_CACHE", "the folder of the user's store of records; `off` keeps and finds nothing")
CUDA_HOME = Variable("CUDA_HOME", "the CUDA toolkit to look into first")
CUDA_PATH = Variable("CUDA_PATH", "the same, where CUDA_HOME has none")
ANSOR_TENSOR_BYTES = Variable("ANSOR_TENSOR_BYTES", "the most bytes that one tensor of a graph may have", str(1 << 32))
ANSOR_FLEET_TOKEN_FILE = Variable("ANSOR_FLEET_TOKEN_FILE", "the file of a fleet's token", "~/.ansor/fleet_token")
ANSOR_FLEET_TOKEN = Variable("ANSOR_FLEET_TOKEN", "the token itself, instead of its file")
TVM_TRACKER_HOST = Variable("TVM_TRACKER_HOST", "where `query_rpc_tracker` asks", "127.0.0.1")
TVM_TRACKER_PORT = Variable("TVM_TRACKER_PORT", "the port that it asks at", "9190")

VARIABLES = (
    TVM_NUM_THREADS, OMP_NUM_THREADS, OMP_WAIT_POLICY, GOMP_SPINCOUNT, CODEGEN_C_THREADS, CODEGEN_C_CACHE, CC, CXX,
    CODEGEN_CUDA_CACHE, ANSOR_CACHE, ANSOR_EXTENSIONS, XDG_CACHE_HOME, XDG_DATA_DIRS, CUDA_HOME, CUDA_PATH,
    ANSOR_TENSOR_BYTES, ANSOR_FLEET_TOKEN_FILE, ANSOR_FLEET_TOKEN, TVM_TRACKER_HOST, TVM_TRACKER_PORT,
)  # fmt: skip
