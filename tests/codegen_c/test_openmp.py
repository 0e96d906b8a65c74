"""Threads of compiled programs look for work a moment and then sleep, unless the user says otherwise.

What OpenMP's library goes by it says itself, when it is loaded (OMP_DISPLAY_ENV).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from codegen_c.compile import compiler_command
from codegen_c.library import is_gcc

PROGRAM = """
import os
from codegen_c.compile import load
load("void f(int *x) {\\n#pragma omp parallel for\\nfor (int i = 0; i < 8; ++i) x[i] = i; }")
print([os.environ.get(name) for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")])
"""


@pytest.mark.skipif(not is_gcc(compiler_command()), reason="what it says of itself is of gcc's library")
@pytest.mark.parametrize(
    ("given", "spins"),
    [
        ({}, "1000"),
        ({"GOMP_SPINCOUNT": "77"}, "77"),
        ({"GOMP_SPINCOUNT": ""}, "1000"),
        ({"OMP_WAIT_POLICY": "passive"}, "0"),
        ({"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "5"}, "5"),
    ],
)
@pytest.mark.one_in(2)
def test_how_long_threads_look_for_work(given: dict[str, str], spins: str) -> None:
    env = {k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "GOMP_"))}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env={**env, "OMP_DISPLAY_ENV": "verbose", **given},
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert re.findall(r"GOMP_SPINCOUNT = '(\d+)'", done.stderr) == [spins], done.stderr
    kept = [given.get(name) for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")]
    assert done.stdout == f"{kept}\n", "the environment is left as it was"
