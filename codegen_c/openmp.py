"""Threads of compiled programs: how many, and how they wait: some 15 microseconds awake, then asleep.

A parallel loop ends when its last thread is done, and the next one begins a moment later: a thread that sleeps in
between takes 10 microseconds to wake up, one that looks again and again takes none.  But a thread that only looks may
be on the core of the one that it waits for, or on that of another process, until the system takes it away: 8 ms.
OpenMP's library lets them look for milliseconds; it reads for how long once, when it is loaded, and the threads of a
network (team.c) when that is (docs/measuring.md).
"""

from __future__ import annotations

import ctypes
import threading
from pathlib import Path

from ansor.core.target.hardware import usable_cores
from te_lite import environment

SPINS = 1000
"""How often a thread looks for work before it sleeps; some 15 ns each."""
_one_at_a_time = threading.Lock()


def open_library(path: str | Path) -> ctypes.CDLL:
    """Load a compiled library, whose threads wait as the user says, or as above.

    Unless the user says how many, they are as many as this process has cores (`usable_cores`): OpenMP does not know
    the limits of control groups.  Raises OSError for what is no library.
    """
    with _one_at_a_time, environment.OMP_NUM_THREADS.unless_set(str(usable_cores())):
        if environment.OMP_WAIT_POLICY.text:
            return ctypes.CDLL(str(path))
        with environment.GOMP_SPINCOUNT.unless_set(str(SPINS)):
            return ctypes.CDLL(str(path))
