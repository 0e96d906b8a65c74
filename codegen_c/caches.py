"""Cold caches: the state of the processor's caches in which a program inside a network finds them.

All cores read a buffer that no cache can hold, which drives out weights and whatever else was there, and then the
first argument, which in a network the kernel before has just written.  TVM's tutorials for CPUs measure in that
state too.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from .compile import load

BYTES = 1 << 27
_READ = """
#include <stdint.h>
int64_t read_lines(const volatile unsigned char *data, int64_t bytes) {
  int64_t sum = 0;
#pragma omp parallel for schedule(static) reduction(+ : sum)
  for (int64_t k = 0; k < bytes; k += 64) sum += data[k];
  return sum;
}
"""


@lru_cache(maxsize=1)
def _reader() -> tuple[Callable[[int, int], int], np.ndarray[Any, np.dtype[np.uint8]]]:
    """The function that reads memory, and the memory that no cache can hold; made once a process."""
    read = load(_READ).read_lines
    read.restype, read.argtypes = ctypes.c_int64, [ctypes.c_void_p, ctypes.c_int64]
    return read, np.full(BYTES, 1, np.uint8)


def flush(pointer: int, nbytes: int) -> None:
    """Leave nothing in the caches but the `nbytes` bytes at the address `pointer`.

    Raises CompileError when there is no C compiler.
    """
    read, foreign = _reader()
    read(foreign.ctypes.data, foreign.nbytes)
    read(pointer, nbytes)
