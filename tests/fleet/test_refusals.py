"""What is wrong before a fleet is there is said in one sentence, whichever program or function is asked."""

from __future__ import annotations

import subprocess
import sys

import pytest

import ansor
from ansor.cluster import engine
from ansor.cluster.server import find_devices
from ansor.core.host.hints import install
from ansor.exec import query_rpc_tracker, rpc_server, rpc_tracker
from tests.fleet.cluster import ROOT, free_port


def test_without_the_extra() -> None:
    code = "import sys; sys.modules['ray'] = None; from ansor.exec import rpc_tracker as t; sys.exit(t.main([]))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    law = f"is not installed: {install('cluster')}"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"fleet: the package ray {law}\n")


def test_nobody_imports_the_engine_before_it_is_needed() -> None:
    code = "import sys, ansor, ansor.autotvm, ansor.exec.rpc_server; sys.exit('ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_without_a_tracker(capsys: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    gone = f"fleet: no tracker answers at 127.0.0.1:{port} ("
    for ask in (ansor.RPCRunner, ansor.request_remote):
        with pytest.raises(ansor.BackendError) as refused:
            ask("x", "0.0.0.0", port)
        assert str(refused.value).startswith(gone) and "\n" not in str(refused.value)
    pytest.importorskip("ray")
    programs = (
        (query_rpc_tracker.main, [f"--port={port}"]),
        (rpc_server.main, [f"--tracker=127.0.0.1:{port}", "--key=x", "--devices=none"]),
    )
    for main, arguments in programs:
        assert main(arguments) == 2
        assert capsys.readouterr().err.startswith(gone)


def test_a_port_that_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ray")
    with engine.socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert rpc_tracker.main([f"--port={port}"]) == 2
    assert capsys.readouterr().err == f"tracker: 127.0.0.1:{port} cannot be had (Address already in use)\n"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--tracker=nowhere", "--key=x"], "tracker: its address is HOST:PORT, got 'nowhere'"),
        (["--tracker=h:99999", "--key=x"], "tracker: its address is HOST:PORT, got 'h:99999'"),
        (["--tracker=h:1", "--key=x", "--backend=c"], "--backend: it is KIND=MODULE, got 'c'"),
        (
            ["--tracker=127.0.0.1:1", "--key=x", "--devices=c:x"],
            "--devices: it is KIND or KIND:NUMBER,NUMBER, got 'c:x'",
        ),
        (["--tracker=127.0.0.1:1", "--key=x", "--devices=c:7"], "target 'c': its devices are [0], got device=7"),
        (["--tracker=127.0.0.1:1", "--key=x", "--devices=fpga"], "target 'fpga': no backend is known"),
    ],
)
def test_servers_that_are_asked_wrongly(arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert rpc_server.main(arguments) in (2, 4)
    said = capsys.readouterr().err
    assert said.startswith(text) and said.count("\n") == 1


def test_devices_by_name() -> None:
    assert find_devices("none") == []
    assert [(d.kind, d.index) for d in find_devices("vta:0")] == [("vta", 0)]
    assert [d.kind for d in find_devices("c")] == ["c"]
    with pytest.raises(ansor.MeasureError, match="must be of one model"):
        find_devices("vta:0,1")


@pytest.mark.parametrize(
    "options",
    [{"port": "x"}, {"priority": 1.5}, {"n_parallel": 0}, {"timeout": 0}, {"number": 0}, {"repeat": -1},
     {"min_repeat_ms": -1}, {"timeout": float("inf")}, {"cooldown_interval": -1}],
)  # fmt: skip
def test_runners_that_are_asked_wrongly(options: dict[str, object]) -> None:
    with pytest.raises(ansor.TaskError, match=r"^RPCRunner: "):
        ansor.RPCRunner("x", **options)  # type: ignore[arg-type]
