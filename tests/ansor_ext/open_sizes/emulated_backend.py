"""The emulated device as the backend of a whole search: nothing needs a GPU or its driver."""

from __future__ import annotations

from tests.codegen_cuda.emulated_device import EmulatedBackend


class SearchedBackend(EmulatedBackend):
    def check(self, target: str) -> None:
        """Nothing is missing."""


BACKEND = SearchedBackend()
