"""PyTorch's side of the study of operators: what it computes is what our operators mean."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.study_beside import library
from benchmarks.workloads import OPERATORS
from te_lite.meaning.reference import evaluate, random_inputs

SMALL = {
    "C1D": (2, 9, 4, 6, 3, 2, 1), "C2D": (2, 7, 9, 4, 6, 3, 1, 1), "C3D": (2, 3, 5, 6, 4, 5, 3, 2, 1),
    "GMM": (3, 4, 5, 6), "GRP": (2, 7, 6, 8, 12, 3, 1, 1, 1, 4), "DIL": (2, 9, 8, 3, 5, 3, 1, 1, 2),
    "DEP": (2, 7, 6, 5, 3, 2, 1), "T2D": (2, 4, 3, 5, 6, 4, 2, 1), "CAP": (2, 5, 6, 3, 2, 3, 2, 1),
    "NRM": (3, 4, 5), "CBR": (2, 5, 6, 3, 4, 3, 1, 1), "TBG": (2, 5, 3, 4),
}  # fmt: skip


@pytest.mark.torch
@pytest.mark.parametrize("operator", SMALL)
def test_pytorch_computes_the_same(operator: str) -> None:
    torch = pytest.importorskip("torch")
    tensors = OPERATORS[operator](*SMALL[operator])
    inputs = random_inputs(tensors[:-1], np.random.default_rng(0))
    theirs = library(torch, operator, SMALL[operator])
    result = theirs.leave(theirs.call(*theirs.enter(*[torch.from_numpy(inputs[t]).double() for t in tensors[:-1]])))
    assert np.allclose(result.numpy(), evaluate([tensors[-1]], inputs, "float64")[tensors[-1]], rtol=0, atol=1e-12)
