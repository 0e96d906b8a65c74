"""A target in one call: its rules, hardware, machine, builder and runner are used; plug-ins; refusals."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import ansor
import te_lite as te
from ansor.analytical.machine import CPU, GPUS, machine_of
from ansor.cli.main import main
from ansor.core.host.hints import ansor as ansor_command
from ansor.core.target import registry
from ansor.offline.analytical import AnalyticalRunner
from ansor.offline.common import NoBuilder
from ansor.sketch import CPU_RULES, default_rules, generate_sketches
from ansor.sketch.rule import Condition

BACKEND = "examples.seams.custom_backend"
MACHINE = CPU("npu", 3, 1e9, 16, 64)
HARDWARE = ansor.HardwareParams(num_cores=3, vector_unit_bytes=16, cache_line_bytes=128)


@pytest.fixture(autouse=True)
def table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_TABLE", dict(registry._TABLE))


class AsTheyAre:
    """No stage is changed."""

    paper = departs = ""

    def condition(self, ctx: Any, state: te.State, k: int) -> Condition:
        return Condition.APPLY_AND_SKIP_REST

    def apply(self, ctx: Any, state: te.State, k: int) -> list[tuple[te.State, int]]:
        return [(state, k - 1)]


class Estimates(AnalyticalRunner):
    """Counts what it measured and whether it was closed."""

    made: ClassVar[list[Estimates]] = []

    def __init__(self) -> None:
        super().__init__()
        self.count, self.closed = 0, 0
        self.made.append(self)

    def run(self, inp: Any, built: Any) -> ansor.MeasureResult:
        self.count += 1
        return super().run(inp, built)

    def close(self) -> None:
        self.closed += 1
        super().close()


@pytest.fixture
def npu() -> Iterator[list[Estimates]]:
    Estimates.made = []
    ansor.register_target(
        "npu", BACKEND, like="c", rules=[AsTheyAre()], hardware=HARDWARE, machine=MACHINE, builder=NoBuilder,
        runner=Estimates,
    )  # fmt: skip
    yield Estimates.made


def matmul_task(target: str = "npu") -> ansor.SearchTask:
    return ansor.SearchTask("matmul", (16, 12, 8), target=target)


def test_every_part_is_used(npu: list[Estimates], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    task = matmul_task()
    assert task.hardware_params.to_json() == HARDWARE.to_json() == [3, 16, 128, 0, 0, 0, 0, 0]
    assert machine_of(task.target, task.hardware_params) is MACHINE
    assert machine_of("c", task.hardware_params) is not MACHINE
    assert len(generate_sketches(task.compute_dag, "npu")) == 1 < len(generate_sketches(task.compute_dag, "c"))
    log = tmp_path / "log.json"
    task.tune(ansor.TuningOptions(4, measure_callbacks=[ansor.RecordToFile(log)]))
    said = capsys.readouterr().out
    assert "searching 1 sketch (1 by the rules of npu, the extra rules are off" in said and "runner Estimates" in said
    assert [r.count for r in npu] == [4] and npu[0].closed > 0
    a, b = np.random.default_rng(0).random((2, 96), "float32")
    a, b, c = np.resize(a, (16, 8)), np.resize(b, (8, 12)), np.empty((16, 12), "float32")
    task.build_best(log)(a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-5)


def test_a_part_that_is_given_goes_first(npu: list[Estimates]) -> None:
    mine = Estimates()
    matmul_task().tune(ansor.TuningOptions(2, verbose=0, runner=mine, builder=mine.builder()))
    assert npu == [mine] and mine.count == 2 and mine.closed == 0


def test_the_command_line_and_the_scheduler_use_them(npu: list[Estimates], tmp_path: Path, capsys: Any) -> None:
    log = str(tmp_path / "log.json")
    command = ["tune", "matmul", "--shape", "16,12,8", "--target", "npu", "--trials", "2", "--log", log]
    assert main(command) == 0 and npu[-1].count == 2 and npu[-1].closed > 0
    assert main(["best", log, "--print", "npu"]) == 0 and "func " in capsys.readouterr().out
    assert main([*command, "--devices", "0", "--more", "1"]) == 2
    assert "--devices: target 'npu' has a runner of its own" in capsys.readouterr().err
    scheduler = ansor.TaskScheduler([matmul_task(), ansor.SearchTask("softmax", (4, 8), target="npu")])
    scheduler.tune(ansor.TuningOptions(4, verbose=0))
    assert npu[-1].count == 4
    with pytest.raises(ansor.TaskError, match="the targets of its tasks have different runners"):
        ansor.TaskScheduler([matmul_task(), matmul_task("c")]).tune(ansor.TuningOptions(4, verbose=0))


def test_what_is_not_said_is_that_of_its_like() -> None:
    ansor.register_target("npu", BACKEND, like="cuda")
    assert ansor.Target("npu").is_gpu and default_rules(ansor.Target("npu")) == default_rules(ansor.Target("cuda"))
    assert machine_of("npu -model=T4", HARDWARE).name == "T4"
    ansor.register_target("npu", BACKEND, rules=(*CPU_RULES, AsTheyAre()))
    assert not ansor.Target("npu").is_gpu and len(default_rules(ansor.Target("npu"))) == len(CPU_RULES) + 1


@pytest.mark.parametrize(
    ("change", "law"),
    [
        ({"kind": "c"}, "the kinds of the package cannot be registered anew"),
        ({"kind": "two words"}, "a target kind is one word"),
        ({"kind": None}, "a target kind is one word"),
        ({"like": "vta"}, "like is one of c, cuda"),
        ({"backend": object()}, "backend is the name of a module"),
        ({"backend": "no_such_module"}, "no module of this name can be imported, got 'no_such_module'"),
        ({"backend": "no_such.module"}, "no module of this name can be imported, got 'no_such.module'"),
        ({"rules": [lambda s: s]}, "custom sketch rule"),
        ({"rules": []}, "at least one rule"),
        ({"hardware": 4}, r"hardware must be ansor\.HardwareParams, got 4"),
        ({"machine": GPUS["H200"]}, "for a target like 'c' the machine must be a CPU"),
        ({"runner": "local"}, "runner must be a function that makes one"),
        ({"builder": NoBuilder()}, "builder must be a function that makes one"),
    ],
)
def test_bad_parts_are_refused_at_the_door(change: dict[str, Any], law: str) -> None:
    before = dict(registry._TABLE)
    with pytest.raises(te.TeError, match=law) as error:
        ansor.register_target(**{"kind": "npu", "backend": BACKEND, **change})
    assert "\n" not in str(error.value) and before == registry._TABLE


def test_a_runner_that_is_none_is_refused_when_it_is_made() -> None:
    ansor.register_target("npu", BACKEND, runner=dict)
    with pytest.raises(ansor.TaskError, match="TuningOptions: runner"):
        matmul_task().tune(ansor.TuningOptions(2, verbose=0))


def plugin(place: Path, points: str, code: str) -> None:
    """An installed package with entry points, as pip leaves one."""
    info = place / "npu_plugin-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: npu-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[ansor.targets]\n{points}\n")
    (place / "npu_plugin_module.py").write_text(code)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.delitem(__import__("sys").modules, "npu_plugin_module", raising=False)
    return tmp_path / "site"


REGISTER = f"import ansor\ndef register():\n    ansor.register_target('npu', {BACKEND!r}, like='cuda')\n"


def test_a_plugin_is_loaded_when_its_kind_is_named(installed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plugin(installed, "npu = npu_plugin_module:register", REGISTER)
    assert "npu" not in registry._TABLE and "npu" in registry.known_kinds()
    with pytest.raises(ansor.TaskError, match=r"did you mean npu\? known targets are c, cuda, vta, npu, cpu, llvm"):
        ansor.Target("npux")
    assert "npu" not in registry._TABLE
    assert ansor.Target("npu -x=1").is_gpu and str(ansor.device("npu")) == "npu(0)"
    assert main(["doctor"]) in (0, 1) and "target npu    is there" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("points", "code", "law"),
    [
        (
            "npu = npu_plugin_module:register",
            "1 / 0",
            "plug-in npu_plugin_module:register fails: ZeroDivisionError",
        ),
        ("npu = nowhere:register", "", "its plug-in nowhere:register fails: ModuleNotFoundError"),
        ("npu = npu_plugin_module:register", "def register(): pass", r"must call ansor\.register_target"),
        ("npu = npu_plugin_module:register", "register = 3", "fails: TypeError"),
        ("npu = npu_plugin_module:register", "raise ValueError('a\\nb')", "fails: ValueError: a b"),
        (
            "npu = npu_plugin_module:register",
            REGISTER.replace("like='cuda'", "like='x'"),
            "fails: BackendError: .*like is",
        ),
    ],
)
def test_a_plugin_that_does_not_work_is_one_sentence(installed: Path, points: str, code: str, law: str) -> None:
    plugin(installed, points, code)
    with pytest.raises(ansor.BackendError, match=law) as error:
        ansor.Target("npu")
    assert "\n" not in str(error.value)


def test_a_module_that_is_no_backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fails_at_once.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(tmp_path)
    for module, text in (
        ("json", "its module json has no object BACKEND, an ansor.core.device.backend.Backend"),
        ("fails_at_once", "its module fails_at_once fails: ZeroDivisionError: division by zero"),
    ):
        ansor.register_target("npu", module)
        with pytest.raises(ansor.BackendError, match=f"^target 'npu': {text}$"):
            ansor.core.device.backend.backend("npu")


def test_what_is_hinted_at_runs_first_what_registers_the_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command that a search named could not be used as it stood: nothing knew the target."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", list(sys.path))
    mine = f"mine_{uuid.uuid4().hex[:8]}.py"
    Path(mine).write_text(
        "import ansor\nfrom ansor.offline.analytical import AnalyticalRunner\n"
        f"ansor.register_target('npu', {BACKEND!r}, runner=AnalyticalRunner, builder=AnalyticalRunner.builder)\n"
    )
    words = ["tune", "matmul", "--shape", "8,8,8", "--target", "npu", "--trials", "2", "--log", "log.json"]
    assert main([*words, "--import", mine]) == 0
    assert capsys.readouterr().out.endswith(f" best log.json --print schedule --import {mine}\n")
    assert "--import" not in ansor_command("best", "log.json"), "another command begins anew"
