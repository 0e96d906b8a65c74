"""A backend for tests: programs are matrix products in NumPy that misbehave as a script says.

`$FAULTS` names a directory with `script` (one word per build, in order); `count` in it is the number of builds so far.
"""

import ctypes
import json
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np

from ansor.core.device.backend import Backend


def _act(fault):
    """The faults that are the same in a build and in a run."""
    match fault:
        case "raise":
            raise RuntimeError("planted " + "x" * 2000)
        case "hang":
            time.sleep(1000)
        case "segv":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "exit":
            os._exit(0)
        case "spam":
            for _ in range(200):
                os.write(1, b"x" * 100_000)
        case "spin":
            ctypes.PyDLL(str(Path(os.environ["FAULTS"]) / "spin.so")).spin()
        case "child":
            pid = os.fork()
            if pid == 0:
                time.sleep(1000)
            time.sleep(1000)
        case "last_words":
            print("these are my last words", file=sys.stderr, flush=True)
            os._exit(3)


class Program:
    def __init__(self, fault):
        self.fault = fault

    def run(self, args):
        _act(self.fault.removeprefix("run_"))
        a, b, c = args
        if self.fault == "untouched":
            return
        c[...] = a @ b
        if self.fault == "wrong":
            c[0, 0] += 1.0
        if self.fault == "nan":
            c[-1, -1] = np.nan
        if self.fault == "scribble":
            a[0, 0] += 1.0

    def time(self, args, number, repeat, min_repeat_ms, flush, best):
        match self.fault:
            case "scribble_late":
                args[0][-1, -1] = np.nan
            case "zero_time":
                return [0.0] * repeat
            case "nan_time":
                return [float("nan")] * repeat
            case "time_raise":
                raise RuntimeError("planted")
            case "slow":
                time.sleep(0.2)
        return [1e-3 * (1 + k) for k in range(repeat)]


class Device:
    def put(self, array):
        return array.copy()

    def write(self, handle, array):
        handle[...] = array

    def get(self, handle):
        return handle

    def load(self, directory):
        fault = json.loads((Path(directory) / "fault.json").read_text())
        if fault == "load_raise":
            raise RuntimeError("planted")
        return Program(fault)


class FaultyBackend(Backend):
    kind = "c"
    shares_host = os.environ.get("SHARES_HOST", "1") == "1"

    def source(self, func, target):
        return f"/* {func.name} for {target} */"

    def build(self, func, target, directory):
        place = Path(os.environ["FAULTS"])
        script = (place / "script").read_text().split()
        with open(place / "count", "a+") as f:
            f.write("x")
            count = f.tell() - 1
        fault = script[count] if count < len(script) else script[-1]
        if fault.startswith("build_"):
            _act(fault.removeprefix("build_"))
        (Path(directory) / "fault.json").write_text(json.dumps(fault))

    def open(self, index):
        return Device()


BACKEND = FaultyBackend()
