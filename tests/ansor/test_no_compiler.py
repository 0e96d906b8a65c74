"""Without a compiler Python hears one sentence on it, whoever asks, before a file or folder is made.

Of the command line: `test_hints.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import ansor
from ansor import autotvm
from codegen_c.errors import CompileError

LOG = "logs/log.json"
SENTENCE = "C compiler: /no/gcc is not on PATH; install gcc, or name a compiler in CC"


def _options() -> ansor.TuningOptions:
    return ansor.TuningOptions(4, measure_callbacks=[ansor.RecordToFile(LOG)])


def _template(task: ansor.SearchTask) -> None:
    tuner = autotvm.tuner.RandomTuner(autotvm.task.create("no compiler", args=(8,), target="c"))
    measuring = autotvm.measure_option(autotvm.LocalBuilder(), autotvm.LocalRunner())
    tuner.tune(2, measuring, callbacks=[autotvm.callback.log_to_file(LOG)])


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CC", "/no/gcc")
    return tmp_path


@pytest.mark.parametrize(
    "tune", [lambda task: task.tune(_options()), lambda task: ansor.TaskScheduler([task]).tune(_options()), _template]
)
def test_in_python(
    tune: Callable[[ansor.SearchTask], None], nowhere: Path, matmul_task: ansor.SearchTask, capfd: pytest.CaptureFixture
) -> None:
    before = dict(autotvm.task._TEMPLATES)

    @autotvm.template("no compiler")
    def template(n: int) -> None:
        config = autotvm.get_config()
        config.define_split("x", config.axis(n), num_outputs=2)
        config.add_flop(1)

    try:
        with pytest.raises(CompileError) as told:
            tune(matmul_task)
    finally:
        autotvm.task._TEMPLATES.clear()
        autotvm.task._TEMPLATES.update(before)
    assert str(told.value) == SENTENCE and not any(nowhere.iterdir()) and "".join(capfd.readouterr()) == ""
