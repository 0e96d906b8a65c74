"""A measuring worker ends with the process that started it, whatever its program does at that moment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
import uuid
from pathlib import Path

import pytest

from tests.fleet.cluster import ROOT, wait_until_none

DRIVER = textwrap.dedent("""\
    import ansor
    import tests.ansor.conftest

    if __name__ == "__main__":
        ansor.register_backend("c", "tests.ansor.fake_devices")
        task = ansor.SearchTask("matmul", (13, 11, 7), target="c")
        state = ansor.SketchPolicy(task, ansor.RandomModel(0), seed=5, verbose=0).ask(1)[0]
        inp = ansor.MeasureInput(task, state)
        builder = ansor.LocalBuilder(n_parallel=1)
        built = builder.submit(inp).result()
        print("built", flush=True)
        ansor.LocalRunner(timeout=100).run(inp, built)
""")


@pytest.mark.long
@pytest.mark.parametrize("fault", ["run_hang", "run_stop", "run_spin"])
@pytest.mark.one_in(3)
def test_a_worker_does_not_outlive_its_parent(fault: str, tmp_path: Path) -> None:
    (tmp_path / "script").write_text(fault)
    (tmp_path / "spin.c").write_text("volatile int x; void spin(void) { for (;;) x = x + 1; }")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", tmp_path / "spin.so", tmp_path / "spin.c"], check=True)
    mark = uuid.uuid4().hex
    env = {**os.environ, "PYTHONPATH": str(ROOT), "FAULTS": str(tmp_path), "MODELS": "one", "FLEET_TEST": mark}
    driver = subprocess.Popen([sys.executable, "-c", DRIVER], cwd=ROOT, env=env, stdout=subprocess.PIPE)
    assert driver.stdout is not None and driver.stdout.readline() == b"built\n"
    while not (tmp_path / "begun").exists():
        assert driver.poll() is None
        time.sleep(0.01)
    time.sleep(0.2)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    driver.stdout.close()
    assert wait_until_none(mark, 10.0) == []
