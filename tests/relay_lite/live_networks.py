"""Parameters with which a network tells two pictures apart, for tests that compare values."""

from relay_lite.testing.live import before_softmax, live_params

__all__ = ["before_softmax", "live_params"]
