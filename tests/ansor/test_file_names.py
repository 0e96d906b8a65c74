"""Whoever takes the name of a file takes a text or a path, and refuses all else in one sentence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ansor
import relay_lite as relay
from ansor import autotvm
from ansor.cost_model import XGBModel
from ansor.offline.replay import ReplayRunner
from ansor.policy.callbacks import PreloadMeasuredStates
from ansor.records.lines import RecordReader, load_records
from te_lite.errors import TeError

TASK = ansor.SearchTask("matmul", (8, 8, 8), target="c")
TAKERS: list[Callable[[Any], Any]] = [
    ansor.RecordToFile, RecordReader, lambda name: list(load_records(name)), ansor.load_best_record,
    lambda name: ansor.save_records(name, [], []), PreloadMeasuredStates, ReplayRunner, ansor.ApplyHistoryBest,
    TASK.apply_best, TASK.build_best, ansor.load_module, relay.load,
    lambda name: XGBModel(model_file=name), lambda name: XGBModel().load(name),
    lambda name: XGBModel().update_from_file(name), autotvm.callback.log_to_file, autotvm.record.load_from_file,
]  # fmt: skip


@pytest.mark.parametrize(
    "name", [5, 2.5, b"log.json", "a\0b", object()], ids=["int", "float", "bytes", "zero", "object"]
)
@pytest.mark.parametrize("take", TAKERS)
def test_what_is_no_name_of_a_file_is_a_sentence(
    take: Callable[[Any], Any], name: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TeError, match=r"^name of a file: a text or a path|^records: the name of a log, sev") as info:
        take(name)
    assert "\n" not in str(info.value) and not list(tmp_path.iterdir())
