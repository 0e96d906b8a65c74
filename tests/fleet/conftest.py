"""The fleets of these tests have a token of their own: the one in the home of whoever runs them is left alone."""

from __future__ import annotations

import pytest

from te_lite.environment import ANSOR_FLEET_TOKEN, ANSOR_FLEET_TOKEN_FILE


@pytest.fixture(autouse=True)
def own_token(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    monkeypatch.setenv(ANSOR_FLEET_TOKEN_FILE.name, str(tmp_path_factory.getbasetemp() / "fleet" / "token"))
    monkeypatch.delenv(ANSOR_FLEET_TOKEN.name, raising=False)
