"""Exported CUDA programs: their loader on a driver that is the block emulator, their header, what is refused.

The folders are made without a GPU, which needs NVRTC.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import ansor
from ansor.core.device.export import PROGRAM, export_program
from ansor.core.device.exported_program import ExportedProgram, program_from_json
from ansor.core.files.sealed_folder import read_sealed_folder
from codegen_c.compile import compiler_command
from codegen_cuda.driver import export
from codegen_cuda.driver.compile import available_compilers
from codegen_cuda.emulation.emulator import run
from te_lite.errors import TeError

pytestmark = pytest.mark.skipif(
    not available_compilers() or shutil.which("g++") is None, reason="NVRTC and g++ are needed"
)
ROWS, COLUMNS = 6, 40


class Kernel:
    """A kernel as PyCUDA calls it, run by the emulator on the source beside the cubin."""

    def __init__(self, source: str, name: str) -> None:
        self.source, self.name, self.dynamic_bytes = source, name, 0

    def set_attribute(self, attribute: str, value: int) -> None:
        assert attribute == "most dynamic bytes"
        self.dynamic_bytes = value

    def __call__(self, *args: Any, grid: Any, block: Any, shared: int) -> None:
        assert self.dynamic_bytes == shared
        run(self.source, self.name, grid, block, args, shared, check=False)


def memcpy_dtoh(array: Any, place: Any) -> None:
    array[...] = place


DRIVER = SimpleNamespace(
    module_from_file=lambda path: SimpleNamespace(
        get_function=lambda name: Kernel(Path(path).with_suffix(".cu").read_text(), name)
    ),
    mem_alloc=lambda count: np.full(count, 255, np.uint8),
    to_device=lambda array: array.copy(),
    memcpy_dtoh=memcpy_dtoh,
    function_attribute=SimpleNamespace(MAX_DYNAMIC_SHARED_SIZE_BYTES="most dynamic bytes"),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A softmax of several kernels with memory in between."""
    task = ansor.SearchTask("softmax", (ROWS, COLUMNS), target="cuda -arch=sm_80")
    policy = ansor.SketchPolicy(task, ansor.RandomModel(0), {"extra_sketch_rules": ""}, seed=0, verbose=0)
    place = tmp_path_factory.mktemp("export") / "made"
    export_program(policy.ask(1)[0], task.compute_dag.tensors, task.target, place, "softmax")
    return place


def test_the_loader(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = SimpleNamespace(driver=DRIVER, autoprimaryctx=None)
    for name, part in (("pycuda", package), ("pycuda.driver", DRIVER), ("pycuda.autoprimaryctx", package)):
        monkeypatch.setitem(sys.modules, name, part)
    spec = importlib.util.spec_from_file_location("exported_softmax", folder / "softmax.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    x = np.random.default_rng(0).normal(size=(ROWS, COLUMNS)).astype("float32")
    out = np.full_like(x, np.nan)
    module.softmax(x, out)
    want = np.exp(x - x.max(axis=1, keepdims=True))
    np.testing.assert_allclose(out, want / want.sum(axis=1, keepdims=True), rtol=1e-5)
    with pytest.raises(ValueError, match="must be a C-contiguous float32 array"):
        module.softmax(x, out.T)


def test_the_header_says_what_a_launch_needs(folder: Path, tmp_path: Path) -> None:
    kernels = program(folder).content.launch["kernels"]
    assert len(kernels) > 1
    checks = [f"if (SOFTMAX_KERNELS != {len(kernels)}) return 1;"]
    for k, facts in enumerate(kernels):
        place = f"softmax_kernels[{k}]"
        checks.append(f'if (strcmp({place}.name, "{facts["name"]}")) return 2;')
        for part in ("grid", "block", "arguments"):
            checks += [f"if ({place}.{part}[{i}] != {n}) return 3;" for i, n in enumerate(facts[part])]
        checks.append(f"if ({place}.dynamic_bytes != {facts['dynamic_bytes']}) return 4;")
    for k, count in enumerate(program(folder).content.launch["scratch_bytes"]):
        checks.append(f"if (softmax_scratch_bytes[{k}] != {count}) return 5;")
    (tmp_path / "main.c").write_text(
        '#include "softmax.h"\n#include <string.h>\nint main(void) {\n' + "\n".join(checks) + "\nreturn 0; }\n"
    )
    command = [*compiler_command(), "-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", f"-I{folder}"]
    subprocess.run([*command, str(tmp_path / "main.c"), "-o", str(tmp_path / "main")], check=True)
    assert subprocess.run([str(tmp_path / "main")], check=False).returncode == 0


def program(folder: Path) -> ExportedProgram:
    return program_from_json("program", *read_sealed_folder(PROGRAM, folder))


def test_load_module_checks_architecture_and_launches(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is loaded on the device before the first call, so that all but that is checked without one."""
    monkeypatch.setattr("codegen_cuda.driver.architecture.architecture", lambda index=0: "sm_86")
    func = export.CudaExporter().load(program(folder))
    assert func.entry_name == "softmax" and "__global__" in func.source
    monkeypatch.setattr("codegen_cuda.driver.architecture.architecture", lambda index=0: "sm_90")
    with pytest.raises(TeError, match="was compiled for sm_80; build it for this device, got device='sm_90'"):
        export.CudaExporter().load(program(folder))
    with pytest.raises(ansor.ExportError, match=r"program .*was compiled for sm_80"):
        ansor.load_module(folder)
