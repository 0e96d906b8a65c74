"""What is promised of data from outside: a result or a GraphError of one sentence, within limits of memory and time."""

from __future__ import annotations

import resource
import signal
from collections.abc import Callable
from typing import Any

from ansor.core.values.checks import tensor_limit
from relay_lite.ir.errors import GraphError

SPARE_BYTES = 256 << 20
SECONDS = 10


def limit_process() -> None:
    """Let this process have three quarters of the largest tensor more of address space than it has now.

    A verdict may then take `SECONDS` of the processor.
    """
    with open("/proc/self/statm") as file:
        pages = int(file.read().split()[0])
    most = pages * resource.getpagesize() + tensor_limit() * 3 // 4 + SPARE_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    signal.signal(signal.SIGPROF, _late)


def verdict(run: Callable[[], Any]) -> str | None:
    """None where `run` gives a result, or a refusal of one sentence; else what went wrong."""
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        run()
    except GraphError as error:
        said = str(error)
        return None if "\n" not in said and len(said) < 2000 else f"no sentence: {said[:300]!r} ({len(said)})"
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:300]}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return None


def _late(*_: Any) -> None:
    raise TimeoutError(f"longer than {SECONDS} s of the processor")
