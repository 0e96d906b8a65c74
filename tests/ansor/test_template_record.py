"""Records of configurations: lines as autotvm writes them, files that survive what happens to files."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansor import autotvm
from ansor.autotvm import MeasureInput, MeasureResult
from ansor.autotvm.record import decode, encode, load_from_file, pick_best, save, target_key
from te_lite.errors import RecordError
from tests.amount import examples
from tests.conformance.tuner import LAYERS, conv_task

# the format of a published record of an accelerator's convolution
LINE = json.dumps({
    "input": [
        "ext_dev -device=vta -keys=vta,cpu -model=pynq_1x16", "conv2d_packed.vta",
        [["TENSOR", [1, 16, 14, 14, 1, 16], "int8"], ["TENSOR", [16, 16, 3, 3, 16, 16], "int8"], [1, 1], [1, 1, 1, 1],
         [1, 1], "NCHW1n16c", "int32"], {},
    ],
    "config": {
        "index": 575, "code_hash": None,
        "entity": [["tile_b", "sp", [-1, 1]], ["tile_h", "sp", [-1, 14]], ["tile_w", "sp", [-1, 14]],
                   ["tile_ci", "sp", [-1, 1]], ["tile_co", "sp", [-1, 4]], ["oc_nthread", "ot", 2],
                   ["h_nthread", "ot", 1]],
    },
    "result": [[0.004933592], 0, 4.5, 1548884020.5], "version": 0.2, "tvm_version": "0.6.dev",
})  # fmt: skip


def pair(layer: int, index: int, cost: float, error_no: int = 0, message: str = "") -> Any:
    task = conv_task(LAYERS[layer])
    return MeasureInput("vta", task, task.config_space.get(index)), MeasureResult((cost,), error_no, message, 0.25, 7)


def facts(found: Any) -> Any:
    inp, res = found
    return inp.target, inp.workload, inp.config.to_json_dict(), res


def test_a_published_line() -> None:
    inp, res = decode(LINE)
    assert inp.task.name == "conv2d_packed.vta" and inp.task.args[0] == ("TENSOR", (1, 16, 14, 14, 1, 16), "int8")
    assert inp.config.index == 575 and inp.config["tile_h"].size == (-1, 14) and inp.config["oc_nthread"].val == 2
    assert res.ok and res.cost == 0.004933592
    assert target_key(inp.target) == ("vta", "pynq_1x16")
    again = json.loads(encode(inp, res))
    assert {**again, "tvm_version": ""} == {
        **json.loads(LINE),
        "tvm_version": "",
        "result": [[0.004933592], 0, 4.5, 1548884020],
    }


def test_round_trip() -> None:
    rng = np.random.default_rng(0)
    for index in rng.integers(0, 1600, 20).tolist():
        for record in (pair(0, index, float(rng.random())), pair(0, index, 1e9, 1, 'no "room"\nleft')):
            assert facts(decode(encode(*record))) == facts(record)


def test_best_of_each_workload(tmp_path: Path) -> None:
    """Order of appearance; failures never win; an existing file takes part, and a file may be distilled in place."""
    log, out = tmp_path / "log", tmp_path / "best"
    records = [pair(0, 1, 3.0), pair(1, 2, 5.0), pair(0, 3, 1.0), pair(0, 4, 0.1, 4), pair(1, 5, 6.0)]
    save(log, *map(list, zip(*records, strict=True)))
    assert pick_best(log, out) == 2
    assert [inp.config.index for inp, _ in load_from_file(out)] == [3, 2]
    save(tmp_path / "more", *map(list, zip(*[pair(2, 6, 2.0), pair(0, 7, 2.0), pair(1, 8, 4.0)], strict=True)))
    assert pick_best(tmp_path / "more", out) == 3
    assert {inp.workload: inp.config.index for inp, _ in load_from_file(out)} == {
        pair(0, 0, 1)[0].workload: 3, pair(1, 0, 1)[0].workload: 8, pair(2, 0, 1)[0].workload: 6,
    }  # fmt: skip
    assert pick_best(log, log) == 2 and len(log.read_text().splitlines()) == 2


def test_bad_lines_are_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = tmp_path / "log"
    log.write_text("\n".join(["# a remark", encode(*pair(0, 1, 1.0)), "{}", "", "nonsense", LINE]) + "\n")
    with caplog.at_level(logging.WARNING, "autotvm"):
        assert len(list(load_from_file(log))) == 2
    text = caplog.records[0].getMessage()
    assert text.startswith(f"{log}: 2 unreadable lines were skipped; line 3: record: an object with the keys")


def mutations() -> list[tuple[str, Any]]:
    """Where a line is changed, and into what."""
    bad: list[Any] = [None, -1, 1e400, "x", [], {}, [[]], [[[1]]], True, 2**70]
    return [(key, value) for key in ("input", "config", "result", "version") for value in bad]


@pytest.mark.parametrize(("key", "value"), mutations())
def test_wrong_values_are_refused(key: str, value: Any) -> None:
    data = json.loads(LINE)
    data[key] = value
    with pytest.raises(RecordError, match="record"):
        decode(json.dumps(data))


def test_infinite_arguments_are_refused() -> None:
    data = json.loads(LINE)
    data["input"][2] = [["TENSOR", [1, 16], "int8"], 1e999]
    with pytest.raises(RecordError, match="numbers must be finite"):
        decode(json.dumps(data).replace("Infinity", "1e999"))


@given(st.data())
@examples(200)
def test_nothing_but_a_record_error(data: Any) -> None:
    """A line with a piece of it replaced is a record or a RecordError."""
    text = LINE.encode()
    start = data.draw(st.integers(0, len(text) - 1))
    piece = data.draw(st.binary(max_size=4) | st.sampled_from([b"[", b"]", b"{}", b"null", b"NaN", b"1e999", b'"']))
    line = text[:start] + piece + text[start + data.draw(st.integers(0, 6)) :]
    try:
        inp, res = decode(line)
    except RecordError as refused:
        assert "\n" not in str(refused)
    else:
        assert facts(decode(encode(inp, res))) == facts((inp, res))


def test_costs_no_reader_takes_are_not_written() -> None:
    for cost in (float("nan"), float("inf"), -1.0):
        with pytest.raises(RecordError):
            encode(*pair(0, 1, cost))
    with pytest.raises(RecordError, match="the protocol must be json"):
        encode(*pair(0, 1, 1.0), protocol="pickle")


def test_history_of_a_file(tmp_path: Path) -> None:
    save(tmp_path / "log", *map(list, zip(*[pair(0, 11, 3.0), pair(0, 12, 2.0)], strict=True)))
    workload = pair(0, 0, 1.0)[0].workload
    for files in (tmp_path / "log", [tmp_path / "log"]):
        assert autotvm.ApplyHistoryBest(files).query("vta", workload).index == 12
    with autotvm.tophub.context("vta", extra_files=[tmp_path / "log"]):
        assert autotvm.DispatchContext.current.query("vta", workload).index == 12
