"""Fixtures of the interpreter tests."""

from __future__ import annotations

import numpy as np
import pytest

from te_lite.meaning import interp


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture(params=["as lanes", "one by one"])
def serial(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Serial loops with and without the shortcut over lanes."""
    if request.param == "one by one":
        monkeypatch.setattr(interp, "MAX_SERIAL_LANES", 0)
    return str(request.param)
