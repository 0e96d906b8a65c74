"""Features, limits and estimates of rows: the same from a trace as without one, for whatever rows come after."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import te_lite as te
from ansor.analytical.machine import machine_of
from ansor.analytical.roofline import seconds
from ansor.core.target.hardware import HardwareParams
from ansor.features import extract
from ansor.sketch.generate import generate_sketches
from ansor.space.limits import fits, threads_per_block
from ansor.space.programs import Programs, RowPrograms, programs
from ansor.space.sample import sample_rows
from ansor.space.spaces import Variant, random_variant
from ansor.space.trace import COMES_AGAIN, REMEMBERED, Replayer
from tests.ansor.feature_values import HARDWARE
from tests.drawn_programs import spaces_of
from tests.nonempty import nonempty
from tests.workloads import WORKLOADS


@pytest.fixture(autouse=True)
def recorded_as_for_users(monkeypatch: pytest.MonkeyPatch, search_little: None) -> None:
    """Not as late as in the small searches of other tests."""
    monkeypatch.setattr("ansor.space.trace.COMES_AGAIN", COMES_AGAIN)


def plain(made: Programs) -> Programs:
    """The same programs, not known to come from rows."""
    return Programs(made.bounds, made.n, made.numbers)


def variants(name: str, target: str, rng: np.random.Generator) -> list[Variant]:
    dag, hardware = te.ComputeDAG(WORKLOADS[name]()), HARDWARE[target]
    sketches = generate_sketches(dag, target, hardware)
    return [random_variant(spaces_of(sketch, target, hardware)[0], rng) for sketch in sketches]


def estimated(made: Programs, hardware: HardwareParams) -> Any:
    """The seconds that the machine model expects."""
    return seconds(made, machine_of("c" if hardware is HARDWARE["c"] else "cuda", hardware))


@pytest.mark.long
@pytest.mark.parametrize("function", [extract, fits, estimated])
@pytest.mark.parametrize("target", ["c", "cuda"])
@pytest.mark.parametrize("name", ["matmul_relu", "conv2d_stride", "softmax", "winograd"])
@pytest.mark.one_in(5)
def test_played_rows(
    name: str, target: str, function: Callable[[Programs, HardwareParams], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ansor.features.extraction.CHUNK", 7)
    rng, hardware = np.random.default_rng(5), HARDWARE[target]
    for variant in nonempty(variants(name, target, rng)):
        for n in (2, 9, 0, 5, 1, 16):
            rows = sample_rows(variant, n, rng, target, hardware) if n else np.zeros((0, variant.space.width), np.int64)
            made = programs(variant, rows, target, hardware)
            found = function(made, hardware)
            wanted = function(plain(made), hardware)
            assert found.dtype == wanted.dtype and found.shape == wanted.shape and len(found) == n
            assert found.tobytes() == wanted.tobytes()


def test_limits_that_are_passed_are_seen() -> None:
    """Hardware so small that some rows fit and some do not."""
    rng = np.random.default_rng(2)
    variant = variants("matmul_relu", "cuda", rng)[0]
    rows = sample_rows(variant, 60, rng, "cuda", HARDWARE["cuda"])
    made = programs(variant, rows, "cuda", HARDWARE["cuda"])
    half = int(np.median(threads_per_block(made.bounds).popitem()[1]))
    small = HardwareParams(-1, 16, 64, 49152, 2**31 - 1, half, 8, 32)
    found = [fits(made, small) for _ in range(3)]
    assert 0 < found[0].sum() < 60 and all(np.array_equal(x, found[0]) for x in found)


def test_limits_that_are_the_same_for_all_rows() -> None:
    """Machines whose vectors hold no element, and programs without vectors."""
    rng, hardware = np.random.default_rng(2), HardwareParams(-1, -1, 64, 49152, 2**31 - 1, 1024, 8, 32)
    for variant in nonempty(variants("softmax", "cuda", rng)):
        made = programs(variant, sample_rows(variant, 9, rng, "cuda", HARDWARE["cuda"]), "cuda", HARDWARE["cuda"])
        assert fits(made, HARDWARE["cuda"]).all() and not any([fits(made, hardware).any() for _ in range(3)])


def test_rows_that_change_later() -> None:
    rng, hardware = np.random.default_rng(7), HARDWARE["c"]
    variant = variants("matmul", "c", rng)[0]
    rows = sample_rows(variant, 12, rng, "c", hardware)
    wanted = extract(programs(variant, rows, "c", hardware), hardware)
    for order in (None, "F"):
        again = np.array(rows, order=order)
        made = programs(variant, again, "c", hardware)
        again[...] = rows[::-1]
        assert np.array_equal(extract(made, hardware), wanted)


def test_a_recording_is_made_the_second_time_and_not_kept_for_ever() -> None:
    recorded = []

    def function(made: Programs, hardware: HardwareParams) -> tuple[list[Any], str]:
        recorded.append(made.n)
        return [made.unroll[k] * 2 for k in made.unroll], "twice"

    rng, hardware = np.random.default_rng(1), HARDWARE["cuda"]
    variant = variants("matmul", "cuda", rng)[0]
    rows = sample_rows(variant, 3, rng, "cuda", hardware)
    player = Replayer(function)

    def of(n: int, cores: int) -> Any:
        return player.replayed(made(n), HardwareParams(1 + cores, 16, 64, 49152, 2**31 - 1, 1024, 8, 32))

    def made(n: int) -> RowPrograms:
        return programs(variant, rows[:n], "cuda", hardware)

    assert of(1, 0) is None and of(3, 0) is None and of(1, 0) is None and not recorded
    found = of(3, 0)
    assert found is not None and found.meaning == "twice" and of(2, 0).program is found.program and len(recorded) == 1
    (lanes,) = found.lanes(slice(1, 3))
    assert lanes.tolist() == [2 * x for x in next(iter(made(3).unroll.values()))[1:3]]
    assert all(of(2, 1 + k) is None for k in range(REMEMBERED)) and of(2, 0) is None
