"""After a search the faster one of the programs found and default ones is kept, and one line says what."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import ansor
from ansor.records.recorder import RecordToFile
from ansor.sketch.plain import untuned_state
from relay_lite import pytorch as front
from relay_lite.pytorch import faster, network, variants, verdict
from relay_lite.pytorch.faster import Tried
from relay_lite.pytorch.program import TorchProgram
from relay_lite.pytorch.verdict import Built, Compared, against_defaults, sentence
from te_lite.errors import TeError

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]
nn = torch.nn
CPU = torch.device("cpu")
Tune = Callable[..., None]


def planted(error: int = 0) -> Tune:
    """A search that finds the untuned nests alone; or, with an error, nothing."""

    def tune(tasks: Sequence[Any], weights: Sequence[int], log: Path, *args: Any, **options: Any) -> None:
        for task in tasks:
            result = ansor.MeasureResult((0.1,), error, "", 1.0, int(time.time()))
            RecordToFile(log).callback(None, [ansor.MeasureInput(task, untuned_state(task))], [result])

    return tune


class Heard(logging.Handler):
    """The warnings that a user sees of our packages."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines += record.getMessage().splitlines()


@pytest.fixture
def heard() -> Iterator[list[str]]:
    handler, loggers = Heard(), [logging.getLogger(name) for name in ("ansor", "relay_lite")]
    for logger in loggers:
        logger.addHandler(handler)
    with torch.no_grad():
        yield handler.lines
    for logger in loggers:
        logger.removeHandler(handler)


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each compilation, whether it may use records."""
    found: list[bool] = []
    plain = variants.compiled

    def compiled(graph: Any, target: Any, log: Any, records: bool = True) -> Any:
        found.append(records)
        return plain(graph, target, log, records)

    monkeypatch.setattr(variants, "compiled", compiled)
    return found


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[TorchProgram]:
    """The programs that were called, in order."""
    found: list[TorchProgram] = []
    plain = TorchProgram.__call__
    monkeypatch.setattr(TorchProgram, "__call__", lambda self, *given: [found.append(self), plain(self, *given)][1])
    return found


def right(module: Any, model: Any, x: Any) -> None:
    want = model(x)
    assert (module(x) - want).abs().max() <= 1e-4 * want.abs().max()


def small() -> tuple[Any, Any]:
    return nn.Sequential(nn.Linear(5, 7), nn.ReLU()).eval(), torch.randn(4, 5)


@pytest.mark.parametrize("way", ["optimize", "compile"])
def test_default_programs_stay_where_the_records_found_are_slow(
    way: str, heard: list[str], compilations: list[bool], ran: list[TorchProgram], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Also when weights are written to, which measures nothing again."""
    searched: list[int] = []
    monkeypatch.setattr(network, "tune", lambda *a, **o: [searched.append(1), planted()(*a, **o)])
    monkeypatch.setenv("ANSOR_CACHE", str(tmp_path / "store"))
    model, x = nn.Linear(512, 512).eval(), torch.randn(128, 512)
    torch._dynamo.reset()
    if way == "optimize":  # whose records are in the store alone
        module = front.optimize(model, (x,), seconds=60)
    else:
        module = torch.compile(model, backend="ansor", options={"seconds": 60, "log": tmp_path / "log.json"})
    right(module, model, x)
    (line,) = heard
    assert line.startswith("ansor: default programs are kept, ") and "(the best found: " in line
    first, second = dict.fromkeys(ran)
    assert ran[-1] is second and compilations == [True, False]
    model.weight.mul_(2)
    right(module, model, x)
    assert ran[-1] not in (first, second)
    assert compilations == [True, False, False] and len(searched) == len(heard) == 1


@pytest.mark.parametrize(("default", "kept"), [(0.5, True), (0.97, True), (0.99, False), (2.0, False)])
def test_operators_are_tried_beside_what_is_kept(
    default: float, kept: bool, heard: list[str], compilations: list[bool], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Default programs stay for more than the gain only, the others of the module are built as those, and all is one
    line."""
    monkeypatch.setattr(network, "tune", planted())
    monkeypatch.setattr(verdict, "call_seconds", lambda runs, *_: [1.0, default])
    monkeypatch.setattr(faster, "call_seconds", lambda runs, *_: [1.0, 0.25][: len(runs)])
    model, x = small()
    right(front.optimize(model, (x,), trials=1, log=tmp_path / "log.json", keep_faster=True), model, x)
    assert compilations == [True, False, not kept]
    (line,) = heard
    ours = "default programs are kept" if kept else "the best programs found are kept"
    assert line.startswith(f"ansor: {ours}, ")
    assert line.endswith("; 1 operator tried in PyTorch, kept there: addmm(7, 4x5, 5x7) (1 call), "
                         "250 ms a call (without: 1 s)")  # fmt: skip


def test_what_has_no_record_is_said_once(heard: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """And not of each module that has an operator in PyTorch."""
    monkeypatch.setattr(faster, "call_seconds", lambda runs, *_: [1.0, 2.0][: len(runs)])
    front.optimize(nn.Sequential(nn.Linear(5, 7), nn.Linear(7, 3)).eval(), (torch.randn(4, 5),), keep_faster=True)
    assert [line.split(" and got")[0] for line in heard] == [
        "target c: 2 kernels have no record", "ansor: 2 operators tried in PyTorch, none is faster there"
    ]  # fmt: skip


def test_nothing_is_compared_where_time_is_short(
    heard: list[str], compilations: list[bool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A build like the one before would last longer than the budget with its grace."""
    monkeypatch.setattr(network, "tune", planted())
    monkeypatch.setattr(verdict, "DEFAULTS_COST", 1e9)
    model, x = small()
    right(front.optimize(model, (x,), seconds=60, log=tmp_path / "log.json"), model, x)
    assert compilations == [True]
    assert heard == [
        "ansor: the best programs found are kept; default ones were not timed beside them, for too little time was left"
    ]


@pytest.mark.parametrize("tune", [lambda *args, **options: None, planted(error=4)])
def test_nothing_is_timed_where_no_record_was_found(
    tune: Tune, heard: list[str], compilations: list[bool], ran: list[TorchProgram], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Nor said, but that there is none; neither is it where all that is asked for is in the log."""
    model, x = small()
    monkeypatch.setattr(network, "tune", tune)
    front.optimize(model, (x,), trials=1, log=tmp_path / "log.json")
    assert [line.split(" and got")[0] for line in heard] == ["target c: 1 kernel has no record"]
    monkeypatch.setattr(network, "tune", planted())
    monkeypatch.setattr(verdict, "call_seconds", lambda *_: [1.0, 2.0])
    front.optimize(model, (x,), trials=1, log=tmp_path / "log.json")
    assert compilations == [True, True, False]
    monkeypatch.setattr(network, "tune", lambda *args, **options: None)
    front.optimize(model, (x,), trials=1, log=tmp_path / "log.json")
    assert compilations == [True, True, False, True]
    assert not ran and len(heard) == 2


@pytest.mark.parametrize("error", [TeError("no"), torch.OutOfMemoryError("full")])
def test_default_programs_that_do_not_run_are_left(error: Exception) -> None:
    def make() -> Any:
        raise error

    built = Built(lambda: None, True, 0.0)
    run, compared = against_defaults(built, make, list, CPU, math.inf)
    assert run is built.run and not compared.defaults_kept
    assert sentence(compared, ()).endswith("default ones were not timed beside them, for they did not run")


def test_a_comparison_ends_when_time_is_out() -> None:
    called: list[str] = []

    def found() -> None:
        called.append("found")

    def default() -> None:
        called.append("default")
        time.sleep(0.3)

    run, compared = against_defaults(Built(found, True, 0.0), lambda: default, list, CPU, time.monotonic() + 0.2)
    assert run is found and called.count("default") == 1
    assert compared.found < compared.default


def test_an_operator_is_not_tried_where_the_last_one_took_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = torch.fx.symbolic_trace(lambda x, y: torch.mm(x, y))
    for node in graph.graph.nodes:
        node.meta["val"] = torch.ones(3, 3)
    (call,) = [node for node in graph.graph.nodes if node.op == "call_function"]
    call.target = torch.ops.aten.mm.default
    for longest, count in ((5.0, 1), (20.0, 0)):
        until = time.monotonic() + 10.0
        _, tried = faster.fastest([call], lambda *_: None, lambda names: lambda *_: None, [], CPU, until, longest)
        assert len(tried) == count


def tried(kept: Sequence[bool]) -> list[Tried]:
    return [Tried(f"aten.mm.default({k})", f"mm({k})", k + 1, 1e-3, 9e-4, one) for k, one in enumerate(kept)]


@pytest.mark.parametrize(
    ("compared", "kept", "text"),
    [
        (Compared(1e-3, 2e-3), [], "the best programs found are kept, 1 ms a call (default ones: 2 ms)"),
        (Compared(2e-3, 1e-3), [], "default programs are kept, 1 ms a call (the best found: 2 ms)"),
        (None, [False, False], "2 operators tried in PyTorch, none is faster there"),
        (Compared(1e-3, 2e-3), [True, False],
         "the best programs found are kept, 1 ms a call (default ones: 2 ms); "
         "2 operators tried in PyTorch, kept there: mm(0) (1 call), 900 us a call (without: 1 ms)"),
    ],
)  # fmt: skip
def test_a_verdict_is_one_line(compared: Compared | None, kept: list[bool], text: str) -> None:
    assert sentence(compared, tried(kept)) == f"ansor: {text}"
