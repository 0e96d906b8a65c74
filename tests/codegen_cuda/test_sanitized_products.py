"""What `benchmarks/sanitized_products.py` takes for clean."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.sanitized_products import PROGRAMS, TOOLS, summary_of, watched_run

SAID = {
    "clean": ("2 kernels ran\n========= ERROR SUMMARY: 0 errors", 0),
    "a race": ("1 kernels ran\n========= RACECHECK SUMMARY: 3 hazards displayed (3 errors, 0 warnings)", 9),
    "wrong": ("AssertionError\n========= ERROR SUMMARY: 0 errors", 1),
    "no device": ("========= Error: Device not supported", 0),
}


@pytest.mark.parametrize("name", SAID)
def test_clean_is_what_ran_was_right_and_had_no_report(name: str, tmp_path: Path) -> None:
    text, code = SAID[name]
    sanitizer = tmp_path / "compute-sanitizer"
    sanitizer.write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\nexit {code}\n")
    sanitizer.chmod(0o755)
    rows = [watched_run(str(sanitizer), tool, "half", 0, 60.0) for tool in TOOLS]
    clean = name == "clean"
    assert [row["program"] for row in rows if "said" not in row] == ["half"] * (len(TOOLS) if clean else 0)
    expected = {"clean kernels": 2 if clean else 0, "programs not clean": 0 if clean else 1}
    assert summary_of(rows) == dict.fromkeys(TOOLS, expected)


def test_what_takes_too_long_is_not_clean(tmp_path: Path) -> None:
    sanitizer = tmp_path / "compute-sanitizer"
    sanitizer.write_text("#!/bin/sh\nexec sleep 30\n")
    sanitizer.chmod(0o755)
    assert watched_run(str(sanitizer), "memcheck", "half", 0, 0.0)["said"] == "its time was up"


def test_there_are_forty_programs() -> None:
    assert len(PROGRAMS) >= 40
