"""Suites of tests to inherit; a failed assertion shows its values, also where the suites are used elsewhere."""

import pytest

SUITES = ("callback", "cost_model", "mutation", "policy", "runner", "sketch_rule", "tuner")
pytest.register_assert_rewrite(*[f"{__name__}.{suite}" for suite in SUITES])
