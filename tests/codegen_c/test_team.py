"""The threads of networks (team.c): every iteration of a loop is done once, whoever comes and whoever does not.

The oracle is NumPy.  `OMP_NUM_THREADS` is read when a library is loaded, so each number of threads has one of its own.
"""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codegen_c import CompileError
from codegen_c import library as team_module
from codegen_c.compile import compiler_command, object_code
from codegen_c.library import is_gcc, library_file, link, team_objects
from codegen_c.openmp import open_library


def there_is_gcc() -> bool:
    try:
        return is_gcc(compiler_command())
    except CompileError:
        return False


pytestmark = [
    pytest.mark.skipif(not there_is_gcc(), reason="others than gcc take OpenMP's library"),
    pytest.mark.timeout(120, method="thread"),  # what hangs is C
]

LOOPS = """
#include <stdint.h>
#include <stdlib.h>
#define LOOP for (int64_t i = 0; i < n; ++i)
void shared_out(int64_t *x, int64_t n) {
  #pragma omp parallel for CLAUSE
  LOOP x[i] += i + 1;
}
void asked_for(int64_t *x, int64_t n) {
  #pragma omp parallel for schedule(dynamic) CLAUSE
  LOOP x[i] += i + 1;
}
void with_scratch(int64_t *x, int64_t n) {
  #pragma omp parallel CLAUSE
  {
    int64_t *t = malloc(8);
    #pragma omp for nowait
    LOOP { *t = i + 1; x[i] += *t; }
    free(t);
  }
}
void asked_for_with_scratch(int64_t *x, int64_t n) {
  #pragma omp parallel CLAUSE
  {
    int64_t *t = malloc(8);
    #pragma omp for schedule(dynamic) nowait
    LOOP { *t = i + 1; x[i] += *t; }
    free(t);
  }
}
"""
NAMES = re.findall(r"void (\w+)", LOOPS)
MANY = 50


def library(clause: str = "", label: str = "") -> Path:
    """A file with the loops; of each `label` another one."""
    return library_file(link({"loops": object_code(f"int made_{label};" + LOOPS.replace("CLAUSE", clause))}))


def loaded(path: Path) -> ctypes.CDLL:
    opened = open_library(path)
    for name in NAMES:
        getattr(opened, name).argtypes = [ctypes.c_void_p, ctypes.c_int64]
    return opened


def check(opened: ctypes.CDLL, n: int, calls: int = 1) -> None:
    """All loops over `n` elements, again and again; the elements behind stay as they are."""
    x, start = np.full(n + 8, -5, np.int64), np.full(n + 8, -5, np.int64)
    for _ in range(calls):
        for name in NAMES:
            getattr(opened, name)(x.ctypes.data, n)
    start[:n] += calls * len(NAMES) * np.arange(1, n + 1)
    np.testing.assert_array_equal(x, start)


def tasks() -> set[str]:
    """The threads of this process."""
    return set(os.listdir("/proc/self/task"))


@pytest.fixture(scope="module", params=[1, 2, 3, 17])
def team(request: pytest.FixtureRequest) -> ctypes.CDLL:
    """The loops, with so many threads."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", f"{request.param}")
        opened = loaded(library(label=f"for_{request.param}"))
    before = tasks()
    check(opened, 1)
    opened.threads = request.param
    assert len(tasks() - before) == opened.threads - 1
    return opened


@given(n=st.integers(0, 2000), calls=st.integers(1, 20))
@settings(max_examples=30, deadline=None)
def test_every_turn_is_done_once(team: ctypes.CDLL, n: int, calls: int) -> None:
    check(team, n, calls)


def test_callers_at_the_same_time(team: ctypes.CDLL) -> None:
    """One has the threads, the others compute by themselves."""
    with ThreadPoolExecutor(5) as pool:
        list(pool.map(lambda k: check(team, 100 + 37 * k, MANY), range(20)))


MEET = """
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>
int meet(_Atomic int *here, int count) {
  _Atomic int met = 0;
  #pragma omp parallel for num_threads(count)
  for (int share = 0; share < count; ++share) {
    time_t end = time(NULL) + 60;
    atomic_fetch_add(here, 1);
    while (atomic_load(here) < count && time(NULL) < end) usleep(100);
    atomic_fetch_add(&met, atomic_load(here) == count);
    usleep(share * 20000);
  }
  return met;
}
"""


@pytest.mark.parametrize("pause", [0.0, 0.05], ids=["at_once", "asleep"])
def test_threads_take_part(pause: float) -> None:
    """Each waits in its share for all the others, also where they had gone to sleep; the caller waits for the last."""
    opened = open_library(library_file(link({"meet": object_code(MEET)})))
    for _ in range(5):
        here = ctypes.c_int(0)
        assert opened.meet(ctypes.byref(here), 4) == 4
        time.sleep(pause)


def test_the_number_of_a_clause() -> None:
    """More shares than threads that are usual, and fewer."""
    for count in (1, 2, 5):
        check(loaded(library(f"num_threads({count})")), 101, MANY)


def test_a_process_that_was_forked_has_threads_of_its_own(team: ctypes.CDLL) -> None:
    check(team, 64, MANY)
    there = os.fork()
    if not there:
        code = 1
        try:
            check(team, 64, MANY)
            code = 0 if len(tasks()) == team.threads else 2
        finally:
            os._exit(code)
    assert os.waitpid(there, 0)[1] == 0
    check(team, 64, MANY)


WITHOUT = """
    import numpy.testing, resource, sys
    from pathlib import Path
    from tests.codegen_c.test_team import check, loaded, tasks
    opened = loaded(Path(sys.argv[1]))
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + (2 << 20), resource.RLIM_INFINITY))
    check(opened, 1000, 20)
    print(len(tasks()))
"""
ASLEEP = """
    import sys, time
    from pathlib import Path
    from tests.codegen_c.test_team import check, loaded
    def running():
        tasks = Path("/proc/self/task").iterdir()
        return [t for t in tasks if (t / "stat").read_text().rpartition(")")[2].split()[0] == "R"]
    check(loaded(Path(sys.argv[1])), 1000)
    end = time.monotonic() + 20
    while len(running()) > 1 and time.monotonic() < end:
        time.sleep(0.01)
    print(len(running()))
"""
TWICE = """
#include <stdint.h>
void twice(int64_t *x, int64_t n) {
  #pragma omp parallel
  {
    #pragma omp for schedule(dynamic) nowait
    for (int64_t i = 0; i < n; ++i) x[i] += 1;
    #pragma omp for schedule(dynamic) nowait
    for (int64_t i = 0; i < n; ++i) x[n + i] += 1;
  }
}
"""
CALL_TWICE = """
    import ctypes, resource, sys
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    ctypes.CDLL(sys.argv[1]).twice((ctypes.c_int64 * 200)(), ctypes.c_int64(100))
"""


def in_a_process(program: str, path: Path) -> subprocess.CompletedProcess[str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "GOMP_"))}
    env = {**kept, "OMP_NUM_THREADS": "4", "OPENBLAS_NUM_THREADS": "1"}
    words = [sys.executable, "-c", textwrap.dedent(program), str(path)]
    return subprocess.run(words, env=env, capture_output=True, text=True, timeout=60)


def test_the_caller_does_what_threads_do_not() -> None:
    """The system gives no thread at all: the loops are done, by the one that is there."""
    done = in_a_process(WITHOUT, library())
    assert (done.stdout, done.returncode) == ("1\n", 0), done.stderr


def test_threads_that_wait_sleep() -> None:
    done = in_a_process(ASLEEP, library())
    assert (done.stdout, done.returncode) == ("1\n", 0), done.stderr


@pytest.mark.parametrize(
    "inside",
    ["#pragma omp for\nfor (int i = 0; i < n; ++i) x[i] += i;", "#pragma omp barrier", "#pragma omp single\nx[0] = 1;"],
    ids=["waits_behind_a_loop", "waits", "by_one"],
)
def test_what_waits_for_other_threads_is_refused(inside: str) -> None:
    text = f"void f(int *x, int n) {{\n#pragma omp parallel\n{{\n{inside}\nx[1] = 2; }} }}"
    with pytest.raises(CompileError, match=r"refuses to link the library: .*undefined reference to `GOMP_"):
        link({"f": object_code(text)})


def test_a_region_of_two_loops_is_refused() -> None:
    done = in_a_process(CALL_TWICE, library_file(link({"twice": object_code(TWICE)})))
    assert done.returncode < 0 and "a loop that is not the only one of its parallel region" in done.stderr


def names_in(path: Path) -> str:
    """Of the libraries that a library needs, and of its symbols."""
    words = ["readelf", "--dynamic", "--dyn-syms", "--wide", str(path)]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def test_a_library_needs_nothing_of_openmps() -> None:
    """And gives its own to no other one."""
    named = names_in(library())
    assert "shared_out" in named and not re.search(r"GOMP_|omp_|libgomp", named)


def test_other_compilers_take_openmps_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake = tmp_path / "cc"
    says = 'case "$*" in *-dM*) echo "#define __clang__ 1";; esac'
    fake.write_text(f'#!/bin/sh\n{says}\nexec {compiler_command()[0]} "$@"\n')
    fake.chmod(0o700)
    monkeypatch.setenv("CC", str(fake))
    assert not is_gcc(compiler_command()) and not team_objects()
    path = library(label="by_another_compiler")
    assert "libgomp" in names_in(path)
    check(loaded(path), 100)


def test_threads_of_networks_that_are_not_used_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """And come back when they are."""
    monkeypatch.setattr("codegen_c.library._FLAGS", (*team_module._FLAGS, "-DIDLE_SECONDS=0"))
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    before = tasks()
    opened = [loaded(library(label=f"idle_{k}")) for k in range(3)]
    for _ in range(5):
        for each in opened:
            check(each, 100)
        end = time.monotonic() + 60
        while tasks() - before and time.monotonic() < end:
            time.sleep(0.01)
        assert not tasks() - before
