"""Limits of control groups, from files as Linux writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansor.core.host.process import group_cores, group_memory
from ansor.core.target import hardware

NEW, OLD = "0::/a/b\n", "7:memory:/a\n4:cpu,cpuacct:/a\n1:name=systemd:/x\n"


def root_with(folder: Path, groups: str, files: dict[str, str]) -> Path:
    for name, text in {"proc/self/cgroup": groups, **{f"sys/fs/cgroup/{k}": v for k, v in files.items()}}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    return folder


@pytest.mark.parametrize(
    ("groups", "files", "cores", "memory"),
    [
        (NEW, {}, None, None),
        ("", {"cpu.max": "100000 100000"}, None, None),
        (NEW, {"a/b/cpu.max": "max 100000", "a/b/memory.max": "max"}, None, None),
        (NEW, {"a/b/cpu.max": "250000 100000", "a/b/memory.max": "4096"}, 3, 4096),
        (NEW, {"a/b/cpu.max": "400000 100000", "a/cpu.max": "150000 100000", "cpu.max": "max 100000"}, 2, None),
        (NEW, {"a/b/cpu.max": "1000 100000", "a/memory.max": "8192", "a/b/memory.max": "9000"}, 1, 8192),
        (OLD, {"cpu,cpuacct/a/cpu.cfs_quota_us": "-1", "cpu,cpuacct/a/cpu.cfs_period_us": "100000"}, None, None),
        (
            OLD,
            {
                "cpu,cpuacct/a/cpu.cfs_quota_us": "200000", "cpu,cpuacct/a/cpu.cfs_period_us": "50000",
                "memory/a/memory.limit_in_bytes": "12345",
            },
            4, 12345,
        ),
    ],
)  # fmt: skip
def test_limits(tmp_path: Path, groups: str, files: dict[str, str], cores: int | None, memory: int | None) -> None:
    root = root_with(tmp_path, groups.strip(), files)
    assert (group_cores(root), group_memory(root)) == (cores, memory)


def test_the_machine_is_what_groups_leave_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TVM_NUM_THREADS", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(hardware, "group_cores", lambda: 1)
    monkeypatch.setattr(hardware, "group_memory", lambda: 1 << 20)
    assert (hardware.host_cores(), hardware.host_memory()) == (1, 1 << 20)
    monkeypatch.setattr(hardware, "group_cores", lambda: None)
    monkeypatch.setattr(hardware, "group_memory", lambda: None)
    assert hardware.host_cores() >= 1 and hardware.host_memory() > 1 << 20
