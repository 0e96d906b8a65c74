"""A compiler that is there and does not work: doctor compiles a kernel, and what the compiler says is shown."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from codegen_cuda.backend import CudaBackend
from codegen_cuda.driver import nvrtc
from codegen_cuda.program.errors import CompileError

pytestmark = pytest.mark.skipif(nvrtc.library() is None, reason="NVRTC is not installed")
BUILTINS, LOG = 7, "nvrtc: error: failed to open libnvrtc-builtins.so.13.0.\n"


class Broken:
    """NVRTC without the library that it opens when it compiles."""

    def __getattr__(self, name: str) -> Any:
        return self.compile if name == "nvrtcCompileProgram" else getattr(REAL, name)

    def __getitem__(self, name: str) -> Any:
        if name == "nvrtcGetProgramLogSize":
            return lambda program, size: setattr(size._obj, "value", len(LOG) + 1) or 0
        if name == "nvrtcGetProgramLog":
            return lambda program, buffer: ctypes.memmove(buffer, LOG.encode(), len(LOG)) and 0
        return REAL[name]

    def compile(self, *_: Any) -> int:
        return BUILTINS


REAL: Any = nvrtc.library()


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "_library", Broken)


@pytest.mark.usefixtures("broken")
def test_its_log_is_shown() -> None:
    with pytest.raises(CompileError, match=r"got NVRTC_ERROR_BUILTIN_OPERATION_FAILURE nvrtc: error: failed to open"):
        nvrtc.compile_program("", ())


@pytest.mark.usefixtures("broken")
def test_doctor_says_that_it_does_not_work() -> None:
    name, works, text = CudaBackend().report()[0]
    assert (name, works) == ("nvrtc", False)
    assert "failed to open libnvrtc-builtins.so.13.0" in text


def test_doctor_says_that_it_works() -> None:
    name, works, text = CudaBackend().report()[0]
    assert (name, works) == ("nvrtc", True) and text.startswith("nvrtc 1")
