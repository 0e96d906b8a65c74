"""A task has numbers for extents, whichever way its computation is given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import ansor
import te_lite as te
from te_lite.errors import TeError

KEY = '["open_rows_of_a_test"]'


def open_rows() -> list[te.Tensor]:
    a = te.placeholder((te.size_var("n", 1, 4), 8), name="A")
    return [a, te.compute(a.shape, lambda i, j: a[i, j] + 1.0, name="B")]


def read_only() -> list[te.Tensor]:
    """A size that no array has."""
    a = te.placeholder((4, 8), name="A")
    return [a, te.compute((4, 8), lambda i, j: a[i, j] + te.size_var("n", 1, 4).astype("float32"), name="B")]


def of_function() -> Any:
    ansor.register_workload("open_rows_of_a_function", open_rows, override=True)
    return ansor.SearchTask("open_rows_of_a_function", (), target="c")


def of_offered_key() -> Any:
    ansor.register_workload_tensors(KEY, open_rows())
    return ansor.SearchTask(workload_key=KEY, target="c")


WAYS: list[Callable[[], Any]] = [
    of_function,
    of_offered_key,
    lambda: ansor.SearchTask(compute_dag=open_rows(), target="c"),
    lambda: ansor.SearchTask(compute_dag=read_only(), target="c"),
    lambda: ansor.SearchTask(compute_dag=open_rows(), workload_key='["refused"]', target="c"),
]


@pytest.mark.parametrize("way", WAYS)
def test_open_extents_are_refused(way: Callable[[], Any]) -> None:
    with pytest.raises(TeError, match=r"the extents of a task are numbers.*, got sizes=\(n,\)$") as caught:
        way()
    assert "\n" not in str(caught.value)


def test_what_is_refused_is_not_registered() -> None:
    with pytest.raises(TeError):
        WAYS[-1]()
    with pytest.raises(ansor.TaskError, match="'refused': is not registered"):
        ansor.workload_key_to_tensors('["refused"]')
