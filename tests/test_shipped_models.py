"""The benchmark of models that packages ship: its table, its list that only shrinks, and its judgement of a model."""

from __future__ import annotations

import json
import shutil
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import onnx
from onnx import helper, numpy_helper

from ansor.core.errors import TaskError
from benchmarks import report, shipped_models, shipped_models_one
from benchmarks.shipped_models_one import Asked, checked, difference

PLACE = "p/models"


def saved(path: Path, op: str = "Relu", shape: tuple[Any, ...] = (2, 3)) -> Path:
    """A model of one product and one node `op`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    ends = [[helper.make_tensor_value_info(n, 1, s)] for n, s in (("x", shape), ("y", None))]
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node(op, ["h"], ["y"])]
    weight = numpy_helper.from_array(np.random.default_rng(0).standard_normal((3, 4)).astype("float32"), "w")
    graph = helper.make_graph(nodes, "g", ends[0], ends[1], [weight])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), path)
    return path


def test_the_table_names_packages_of_many_fields_and_the_list_only_models_of_them() -> None:
    table, listed = (json.loads(file.read_text()) for file in (shipped_models.TABLE, shipped_models.REFUSED))
    assert len({name.partition("==")[0] for name in table}) >= 24 + 15
    assert len({facts["field"] for facts in table.values()}) >= 20
    assert all(name.count("==") == 1 and set(facts) <= {"field", "models"} for name, facts in table.items())
    for name, one in listed.items():
        assert name.partition("/")[0] in table and one["reason"] and one["outcome"] != shipped_models.RIGHT, name


def test_equal_files_are_tried_once_with_what_the_table_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("p==1", "q==2"):
        wheel = tmp_path / "wheels" / package / "w.whl"
        wheel.parent.mkdir(parents=True)
        with zipfile.ZipFile(wheel, "w") as made:
            made.write(saved(tmp_path / "a.onnx"), f"{PLACE}/a.onnx")
            made.write(saved(tmp_path / "b.onnx", "Tanh", ("n", 3)), f"{PLACE}/b_{package[0]}.onnx")
            made.writestr(f"{PLACE}/code.py", "raise SystemExit")
    facts = {"field": "toys", "models": {"b*": {"shapes": {"x": [5, 3]}}}}
    (tmp_path / "table.json").write_text(json.dumps({"p==1": facts, "q==2": facts}))
    monkeypatch.setattr(shipped_models, "TABLE", tmp_path / "table.json")
    monkeypatch.setattr(shipped_models.subprocess, "run", lambda *a, **k: type("Done", (), {"stderr": ""}))
    found = list(shipped_models.models(tmp_path, []))
    assert [m.name for m in found] == [f"p==1/{PLACE}/a.onnx", f"p==1/{PLACE}/b_p.onnx"]
    assert [m.same for m in found] == [(f"q==2/{PLACE}/a.onnx",), (f"q==2/{PLACE}/b_q.onnx",)]
    assert [dict(m.asked) for m in found] == [{}, {"shapes": {"x": [5, 3]}}]
    assert not list((tmp_path / "p==1").rglob("*.py"))
    assert [m.name for m in shipped_models.models(tmp_path, ["b_p"])] == [found[1].name]


def test_the_list_may_only_shrink(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipped_models, "REFUSED", tmp_path / "refused.json")
    (tmp_path / "refused.json").write_text(json.dumps({"old": {}, "cured": {}, "not tried": {}}))
    bad = {"outcome": "refused", "reason": "no such operator"}
    found = {"old": bad, "cured": {"outcome": "right", "reason": ""}, "new": bad, "good": {"outcome": "right"}}
    assert shipped_models.against_the_list(found) == [
        "cured is right; take it out of refused.json", "new is refused: no such operator",
    ]  # fmt: skip


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler")
def test_a_model_is_compared_and_timed_and_a_wrong_one_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipped_models_one, "SLICE", 0.001)
    path = saved(tmp_path / "m.onnx")
    for asked in (Asked(), Asked({"x": (5, 3)}, {"x": (-2, 7)})):
        found = checked(path, asked)
        assert found.outcome == "right" and found.ratio and found.error is not None and found.limit
        assert found.error < found.limit < 1e-3 and found.contrast and found.contrast > found.limit
    real = shipped_models_one.outputs
    monkeypatch.setattr(shipped_models_one, "outputs", lambda m, feeds: [1.01 * x for x in real(m, feeds)])
    found = checked(path, Asked())
    assert found.outcome == "wrong" and "from the imported graph in float64" in found.reason
    assert checked(saved(tmp_path / "n.onnx", "NoSuchOperator"), Asked()).outcome == "refused"


def test_a_process_that_is_late_or_dies_is_an_outcome(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = shipped_models.Model("m", "toys", tmp_path / "none.onnx", {})
    monkeypatch.setattr(sys, "argv", ["shipped_models"])
    for words, limit, outcome in ((["-c", "while True: pass"], 0.5, "late"), (["-c", "exit('lost')"], 60, "crashed")):
        monkeypatch.setattr(shipped_models, "ONE", words)
        options = shipped_models.argparse.Namespace(threads=1, gigabytes=1, limit=limit)
        found = shipped_models.outcome(model, options)
        assert found["outcome"] == outcome and ("lost" in found["reason"] or outcome == "late")


def test_differences_are_of_finite_values_and_odd_ones_must_agree() -> None:
    want = [np.array([1.0, np.inf, np.nan, -10.0]), np.array([3, 4])]
    assert difference([want[0].copy(), want[1]], want) == 0
    assert difference([np.array([1.5, np.inf, np.nan, -10.0]), want[1]], want) == pytest.approx(0.05)
    assert difference([want[0], np.array([3, 5])], want) == pytest.approx(0.25)
    for got in (np.array([1, -np.inf, np.nan, -10.0]), np.array([1, np.inf, 0, -10.0]), want[0][:3]):
        assert difference([got, want[1]], want) == float("inf")


def test_a_package_without_a_wheel_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = type("Done", (), {"stderr": "WARNING: x\nERROR: No matching distribution found for p==1\n"})
    monkeypatch.setattr(shipped_models.subprocess, "run", lambda *a, **k: told)
    with pytest.raises(TaskError, match=r"p==1: one wheel is needed, pip said \['ERROR: No matching distribution"):
        shipped_models.unpacked("p==1", tmp_path)
    assert report.sentence(TaskError("p==1: x")) == "p==1: x"
