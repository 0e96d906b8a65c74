"""Other sizes for problems of KernelBench: what counts as a size, and which changes a model takes."""

from pathlib import Path

from benchmarks.kernelbench_sizes import changed, load, written_sizes

PROBLEM = """
import math
batch_size = 128
channels = 32
groups = 8
height = width = 4 * 64
shape = (16, 3, 50)
bias_shape = (channels, 1, 1)
scale = 2.0
training = True


def get_inputs():
    return [batch_size, channels, height]
"""


def _file(folder: Path) -> Path:
    file = folder / "1_Problem.py"
    file.write_text(PROBLEM)
    return file


def test_sizes_are_the_large_numbers_that_names_are_given(tmp_path: Path) -> None:
    sizes = {"batch_size": 128, "channels": 32, "height": 256, "width": 256, "shape": (16, 3, 50)}
    assert written_sizes(_file(tmp_path)) == sizes


def test_what_follows_from_a_size_follows_from_the_other_one(tmp_path: Path) -> None:
    module = load(_file(tmp_path), {"channels": 31, "width": 7})
    assert module.bias_shape == (31, 1, 1) and module.get_inputs() == [128, 31, 256] and module.width == 7


def test_a_module_is_what_an_import_makes_of_it(tmp_path: Path) -> None:
    file = tmp_path / "2_Annotated.py"
    file.write_text("from dataclasses import dataclass\nM = 64\n\n@dataclass\nclass A:\n    x: int = M\n")
    assert load(file, {}).A().x == 64 and load(file, {"M": 61}).A().x == 61
    assert load(file, {}).A.__annotations__ == {"x": int}
    file.write_text("from __future__ import annotations\n\nM = 64\n\ndef f(a: int) -> None: ...\n")
    assert load(file, {"M": 61}).f.__annotations__["a"] == "int" and load(file, {"M": 61}).M == 61


def test_sizes_change_where_the_model_runs_with_them(tmp_path: Path) -> None:
    file = _file(tmp_path)
    primes = {"batch_size": 127, "channels": 31, "height": 251, "width": 251, "shape": (13, 3, 47)}
    assert changed(file, "primes", lambda sizes: True) == primes
    whole = changed(file, "halves", lambda sizes: sizes.get("channels", 32) % 32 == 0)
    assert whole == {"batch_size": 64, "height": 128, "width": 128, "shape": (8, 3, 25)}
    assert changed(file, "one", lambda sizes: True) == {"batch_size": 1}
    assert changed(file, "primes", lambda sizes: False) == {}
