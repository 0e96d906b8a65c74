"""The token of a fleet: who may read its file, and what nobody gets without it."""

from __future__ import annotations

import os
import signal
import socket
import stat
import struct
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import ansor
from ansor.cluster.engine import require_exposed
from ansor.cluster.processes import tree_of
from ansor.cluster.token import ensure_token, read_token
from ansor.exec import rpc_server, rpc_tracker
from te_lite.environment import ANSOR_FLEET_TOKEN, ANSOR_FLEET_TOKEN_FILE
from tests.fleet.cluster import Cluster, Program, marked, wait_until_none

# ------------------------------------------------------------------------------------------------------- the file


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(ANSOR_FLEET_TOKEN_FILE.name, str(tmp_path / "own" / "token"))
    return tmp_path / "own" / "token"


def refusal() -> str:
    with pytest.raises(ansor.BackendError) as error:
        read_token()
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("mask", [0o000, 0o022])
def test_the_file_is_for_its_owner_only(file: Path, mask: int) -> None:
    before = os.umask(mask)
    ensure_token()
    os.umask(before)
    assert [stat.S_IMODE(p.stat().st_mode) for p in (file.parent, file)] == [0o700, 0o600]
    token = read_token()
    assert len(token) == 64 and token == file.read_text()
    ensure_token()
    assert read_token() == token, "it is made once"


def test_a_file_that_others_can_read_or_change(file: Path) -> None:
    ensure_token()
    for place, mode, law in (
        (file, 0o640, "others may read it, try chmod 600"), (file, 0o602, "others may write it"),
        (file.parent, 0o770, "others may write"), (file.parent, 0o707, "others may write"),
    ):  # fmt: skip
        place.chmod(mode)
        assert law in refusal()
        place.chmod(0o700)
    assert read_token()


def test_what_is_no_token(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert f"{file} is missing; copy that of the tracker there" in refusal()
    ensure_token()
    for text in ("", "short", "x" * 31, "x" * 40 + "\ny", "ü" * 40):
        file.write_text(text)
        refusal()
    monkeypatch.setenv(ANSOR_FLEET_TOKEN.name, "short")
    assert refusal().endswith("see ANSOR_FLEET_TOKEN, got characters=5")
    monkeypatch.setenv(ANSOR_FLEET_TOKEN.name, "a" * 32)
    assert read_token() == "a" * 32


# ---------------------------------------------------------------------------------------------- other machines


def test_an_address_of_other_machines_needs_a_flag(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ray")
    for main, arguments in ((rpc_tracker.main, ["--host=0.0.0.0", "--port=1"]),
                            (rpc_tracker.main, ["--host=10.1.2.3"]), (rpc_tracker.main, ["--host=::"]),
                            (rpc_server.main, ["--tracker=10.1.2.3:9190", "--key=x", "--devices=none"])):  # fmt: skip
        assert main(arguments) == 2
        said = capsys.readouterr().err
        assert "reaches beyond this machine" in said and said.endswith("allow it by --expose\n")
    require_exposed("127.0.0.1", False)
    require_exposed("10.1.2.3", True)
    said = capsys.readouterr().err
    assert said.startswith("WARNING: fleet: ") and "not encrypted" in said and said.count("\n") == 1


# ------------------------------------------------------------------------------------------------ a fleet that runs


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    pytest.importorskip("ray")
    made = Cluster(uuid.uuid4().hex)
    made.begin_server("k", "c").wait_for("INFO:RPCServer:bind")
    yield made
    made.close()
    assert wait_until_none(made.mark, 20.0) == []


METHODS = (
    "/ray.rpc.NodeInfoGcsService/GetAllNodeInfo", "/ray.rpc.NodeManagerService/RequestWorkerLease",
    "/ray.rpc.CoreWorkerService/PushTask", "/ray.rpc.ObjectManagerService/Push",
    "/ray.rpc.InternalKVGcsService/InternalKVGet", "/ray.rpc.JobInfoGcsService/AddJob",
)  # fmt: skip
OK, UNIMPLEMENTED, UNAUTHENTICATED = 0, 12, 16


def ask(port: int, method: str, token: str | None) -> int | None:
    """The status that gRPC answers a call of `method` with an empty message; None when nobody speaks it there."""

    def frame(kind: int, flags: int, stream: int, data: bytes) -> bytes:
        return struct.pack(">I", len(data))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + data

    def field(name: str, value: str) -> bytes:
        return b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()

    names = {":method": "POST", ":scheme": "http", ":path": method, ":authority": "x", "te": "trailers",
             "content-type": "application/grpc"}  # fmt: skip
    names |= {"authorization": f"Bearer {token}"} if token else {}
    head = b"".join([field(name, value) for name, value in names.items()])
    call = frame(1, 4, 1, head) + frame(0, 1, 1, b"\0" * 5)
    said = b""
    with socket.create_connection(("127.0.0.1", port), 5) as line:
        line.settimeout(3)
        line.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b"") + call)
        try:
            while b"grpc-status" not in said and (data := line.recv(1 << 16)):
                said += data
        except OSError:
            return None
    _, found, value = said.partition(b"grpc-status")
    return int(value[1 : 1 + value[0]]) if found else None


def ports_of(mark: str) -> set[int]:
    """Where the programs of a fleet and all processes below them listen."""
    own = [int(line.split()[0]) for line in marked(mark)]
    sockets = set()
    for pid in {pid for leader in own for pid in (leader, *tree_of(leader))}:
        with suppress(OSError):
            sockets |= {os.readlink(f) for f in (Path("/proc") / str(pid) / "fd").iterdir()}
    ports = set()
    for table in ("tcp", "tcp6"):
        for row in (Path("/proc/net") / table).read_text().splitlines()[1:]:
            words = row.split()
            if words[3] == "0A" and f"socket:[{words[9]}]" in sockets:
                ports.add(int(words[1].rpartition(":")[2], 16))
    return ports


def no_port_answers_without_the_token(cluster: Cluster) -> None:
    token = read_token()
    guarded = 0
    for port in ports_of(cluster.mark):
        found = {ask(port, method, wrong) for method in METHODS for wrong in (None, "0" * 64)}
        assert found <= {UNAUTHENTICATED, UNIMPLEMENTED, None}, (port, found)
        guarded += UNAUTHENTICATED in found
    assert guarded >= 6, "tracker, two raylets, their object managers, actors"
    assert ask(cluster.port, METHODS[0], token) not in (UNAUTHENTICATED, None), "our own client speaks gRPC"


def programs_without_the_token_get_one_sentence(cluster: Cluster) -> None:
    wrong, none = {ANSOR_FLEET_TOKEN.name: "0" * 64}, {ANSOR_FLEET_TOKEN_FILE.name: "/nonexistent/token"}
    at = f"127.0.0.1:{cluster.port}"
    for env, sentence in (
        (wrong, f"fleet: the tracker at {at}: refuses the token of ANSOR_FLEET_TOKEN; it must be that of the tracker"),
        (none, "fleet: the token /nonexistent/token is missing; copy that of the tracker there, or name it in "
               "ANSOR_FLEET_TOKEN_FILE or ANSOR_FLEET_TOKEN"),
    ):  # fmt: skip
        begin = time.monotonic()
        tools = [
            Program("query_rpc_tracker", f"--port={cluster.port}", mark=cluster.mark, env=env),
            cluster.begin_server("k", "none", env),
        ]
        for tool in tools:
            said, _ = tool.process.communicate(timeout=60)
            assert (tool.process.returncode, said.decode()) == (2, sentence + "\n")
        assert time.monotonic() - begin < 15
    assert "Queue Status" in cluster.query()


def folders() -> list[Path]:
    return [p for p in Path("/tmp").glob("ansor_fleet_*") if p.stat().st_uid == os.geteuid()]


@pytest.mark.long
def test_the_fleet_has_a_key(cluster: Cluster) -> None:
    """And leaves nothing when its programs are killed."""
    assert "INFO:RPCTracker:token in " in cluster.tracker.printed
    assert len(folders()) >= 2 and {stat.S_IMODE(p.stat().st_mode) for p in folders()} == {0o700}
    programs_without_the_token_get_one_sentence(cluster)
    no_port_answers_without_the_token(cluster)
    before = set(folders())
    cluster.tracker.stop(signal.SIGKILL)
    cluster.servers[0].stop(signal.SIGKILL)
    assert wait_until_none(cluster.mark, 15.0) == []
    end = time.monotonic() + 15
    while len(before - set(folders())) < 2 and time.monotonic() < end:
        time.sleep(0.1)
    assert len(before - set(folders())) == 2, "their folders are gone"


@pytest.mark.long
def test_a_keeper_that_is_killed_leaves_nothing_either(cluster: Cluster) -> None:
    """The program notices, ends, and ends what the keeper left."""
    below = tree_of(cluster.tracker.process.pid)
    keepers = [int(line.split()[0]) for line in marked(cluster.mark) if "ansor.cluster.keeper" in line]
    (keeper,) = [pid for pid in keepers if pid in below]
    os.kill(keeper, signal.SIGKILL)
    assert cluster.tracker.process.wait(30) == 2
    assert cluster.servers[0].process.wait(60) == 2
    assert wait_until_none(cluster.mark, 15.0) == []
    assert not [p for p in folders() if p.name.startswith(f"ansor_fleet_{keeper}_")]
