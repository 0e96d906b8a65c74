"""Kernels that take tensor maps, launched, recorded and exported: what a driver is told, by a fake of it."""

from __future__ import annotations

import ctypes
import gc
import importlib.util
import json
import random
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ansor.core.device.exported_program import Argument
from codegen_c.compile import compiler_command
from codegen_cuda.driver import export, tensor_maps
from codegen_cuda.driver.device import CudaDevice, DeviceProgram
from codegen_cuda.networks import cuda_graph
from codegen_cuda.networks.cuda_graph import RecordedKernel
from codegen_cuda.overlap.prefetch import Ahead
from codegen_cuda.program.cuda_program import TFLOAT32, CudaProgram, TensorMap
from codegen_cuda.program.errors import DeviceError
from codegen_cuda.program.facts import facts_from_json, program_facts
from tests.codegen_cuda.copy_kernels import COPIES
from tests.codegen_cuda.emulated_device import EmulatedDevice

emulated = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not on PATH: kernels cannot be emulated")
FOUR = COPIES["four axes as two"]


class FakeLibrary:
    """`cuTensorMapEncodeTiled`, and that of windows, write what they were given, in the order of their headers, and
    count their calls."""

    def __init__(self, code: int = 0) -> None:
        self.code, self.calls = code, 0

    def __call__(self, name: str) -> FakeLibrary:
        assert name == "libcuda.so.1"
        return self

    def cuTensorMapEncodeTiled(
        self, place: Any, dtype: int, rank: int, address: Any, extents: Any, strides: Any, box: Any, steps: Any,
        interleave: int, swizzle: int, promotion: int, fill: int,
    ) -> int:  # fmt: skip
        assert (interleave, promotion, fill) == (0, 2, 0)
        numbers = [address.value, dtype, rank, swizzle, *list(extents)[:rank], *list(strides)[: rank - 1]]
        return self.keep(place, [*numbers, *list(box)[:rank], *list(steps)[:rank]])

    def cuTensorMapEncodeIm2col(
        self, place: Any, dtype: int, rank: int, address: Any, extents: Any, strides: Any, lower: Any, upper: Any,
        channels: int, pixels: int, steps: Any, interleave: int, swizzle: int, promotion: int, fill: int,
    ) -> int:  # fmt: skip
        assert (interleave, promotion, fill) == (0, 2, 0)
        numbers = [address.value, dtype, rank, swizzle, *list(extents)[:rank], *list(strides)[: rank - 1]]
        return self.keep(place, [*numbers, *lower, *upper, channels, pixels, *list(steps)[:rank]])

    def keep(self, place: Any, numbers: list[int]) -> int:
        self.calls += 1
        assert place.value % 64 == 0
        data = struct.pack(f"<{len(numbers)}H", *[n & 0xFFFF for n in numbers]).ljust(128, b"\xee")
        ctypes.memmove(place.value, data, 128)
        return self.code


def written(*numbers: int) -> bytes:
    return struct.pack(f"<{len(numbers)}H", *numbers).ljust(128, b"\xee")


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], FakeLibrary]]:
    def made(code: int = 0) -> FakeLibrary:
        found = FakeLibrary(code)
        monkeypatch.setattr(ctypes, "CDLL", found)
        return found

    tensor_maps.encoded.cache_clear()
    yield made
    tensor_maps.encoded.cache_clear()


def test_what_the_driver_is_told(library: Callable[..., FakeLibrary]) -> None:
    """Innermost axes first; the bytes between elements of all axes but that one."""
    library()
    made = TensorMap(0, "bfloat16", (3, 5, 7, 64), (1, 2, 3, 32), (1, 1, 2, 1), 64)
    want = written(4096, 9, 4, 2, 64, 7, 5, 3, 128, 896, 4480, 32, 3, 2, 1, 1, 2, 1, 1)
    assert tensor_maps.encoded(made, 4096) == want
    one = TensorMap(0, "int8", (48,), (16,), (1,), 0)
    assert tensor_maps.encoded(one, 32) == written(32, 0, 1, 0, 48, 16, 1)
    rounded = TensorMap(0, TFLOAT32, (5, 64), (4, 32), (1, 1))
    assert tensor_maps.encoded(rounded, 64) == written(64, 11, 2, 3, 64, 5, 256, 32, 4, 1, 1)


def test_what_the_driver_is_told_of_windows(library: Callable[..., FakeLibrary]) -> None:
    """The corners as far from an image as they are, those of columns first; channels, and how many windows."""
    library()
    made = TensorMap(0, "float16", (3, 5, 7, 64), (128, 1, 1, 32), (1, 2, 3, 1), 64, (1, 2, 4, 3))
    corners = [n & 0xFFFF for n in (-2, -1, -3, -4)]
    want = written(64, 6, 4, 2, 64, 7, 5, 3, 128, 896, 4480, *corners, 32, 128, 1, 3, 2, 1)
    assert tensor_maps.encoded(made, 64) == want
    library(1)
    with pytest.raises(DeviceError, match=r"cuTensorMapEncodeIm2col: error 1$"):
        tensor_maps.encoded(made, 128)


def test_a_map_of_an_address_is_made_once(library: Callable[..., FakeLibrary]) -> None:
    found, (made, other) = library(), FOUR.maps()
    for address in (4096, 8192, 4096):
        assert len(tensor_maps.encoded(made, address)) == 128
    assert found.calls == 2
    tensor_maps.encoded(other, 4096)
    assert found.calls == 3


def test_a_refusal_is_one_sentence(library: Callable[..., FakeLibrary], monkeypatch: pytest.MonkeyPatch) -> None:
    library(1)
    with pytest.raises(DeviceError, match=r"^tensor map: the driver does not make TensorMap\(.*\) of address 0x11: "
                       r"cuTensorMapEncodeTiled: error 1$"):  # fmt: skip
        tensor_maps.encoded(FOUR.maps()[0], 17)

    def missing(name: str) -> Any:
        raise OSError(f"{name}: cannot open shared object file")

    for library_of in (missing, lambda name: SimpleNamespace()):
        monkeypatch.setattr(ctypes, "CDLL", library_of)
        with pytest.raises(DeviceError, match=r"^tensor map: .*(cannot open|no attribute 'cuTensorMapEncodeTiled')"):
            tensor_maps.encoded(FOUR.maps()[0], 16)


CALL = [ctypes.c_void_p, *[ctypes.c_uint] * 7, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p]


class LaunchingLibrary(FakeLibrary):
    """A driver that loads modules and launches one kernel, whose parameters are `sizes` bytes each.

    `calls` has what each launch was given, `modules` the numbers of those that are loaded; the call `fails` gives 700.
    """

    def __init__(self, sizes: Sequence[int], fails: str = "") -> None:
        super().__init__()
        self.sizes, self.fails, self.modules = sizes, fails, set[int]()
        self.launches, self.loaded, self.attributes = list[tuple[Any, ...]](), list[bytes](), list[tuple[int, int]]()
        self.cuLaunchKernel = ctypes.CFUNCTYPE(ctypes.c_int, *CALL)(self.launch)

    def answer(self, call: str) -> int:
        return 700 if call == self.fails else 0

    def launch(
        self, function: int, gx: int, gy: int, gz: int, bx: int, by: int, bz: int, shared: int, stream: int | None,
        places: Any, extra: int | None,
    ) -> int:  # fmt: skip
        assert function == 0xF00000000 + max(self.modules) and extra is None
        if any(places[k] % 64 for k in range(len(self.sizes))):
            return 716
        values = [ctypes.string_at(places[k], n) for k, n in enumerate(self.sizes)]
        given = [x if len(x) == 128 else int.from_bytes(x, "little") for x in values]
        self.launches.append(((gx, gy, gz), (bx, by, bz), shared, stream, given))
        return self.answer("cuLaunchKernel")

    def cuModuleLoadData(self, module: Any, image: bytes) -> int:
        self.loaded.append(image)
        module._obj.value = 0x700000000 + len(self.loaded)
        self.modules.add(len(self.loaded))
        return self.answer("cuModuleLoadData")

    def cuModuleGetFunction(self, function: Any, module: Any, name: bytes) -> int:
        assert name == b"boxes_kernel0"
        function._obj.value = module.value - 0x700000000 + 0xF00000000
        return self.answer("cuModuleGetFunction")

    def cuFuncSetAttribute(self, function: Any, attribute: int, value: int) -> int:
        self.attributes.append((attribute, value))
        return self.answer("cuFuncSetAttribute")

    def cuModuleUnload(self, module: Any) -> int:
        self.modules.remove(module.value - 0x700000000)
        return 0


def loaded_maps(library: FakeLibrary, monkeypatch: pytest.MonkeyPatch, ahead: bool = False) -> DeviceProgram:
    """A program on a device of the fake driver; PyCUDA is not asked for its kernel."""
    monkeypatch.setattr(ctypes, "CDLL", library)
    facts = facts_from_json(json.loads(json.dumps(program_facts(FOUR.program()) | {"ahead": ahead})))
    device = SimpleNamespace(
        cuda=SimpleNamespace(module_from_buffer=bytes.decode), numbers=SimpleNamespace(multiprocessors=7),
        map_kernel=CudaDevice.map_kernel, encoded=CudaDevice.encoded,
    )  # fmt: skip
    return DeviceProgram(device, [b"\x7fELF\0cubin"], facts)  # type: ignore[arg-type]


HIGH = 0x7F0000000000
"""Addresses need more than 32 bits."""


@pytest.mark.usefixtures("library")
def test_a_launch_passes_maps_before_pointers(monkeypatch: pytest.MonkeyPatch) -> None:
    found = LaunchingLibrary((128, 128, 8))
    program = loaded_maps(found, monkeypatch)
    assert found.loaded == [b"\x7fELF\0cubin"] and found.attributes == [(8, 0)]
    arrays = [SimpleNamespace(pointer=HIGH + p) for p in (256, 512, 768)]
    for stream in (None, SimpleNamespace(handle=HIGH + 1), None):
        program.launch(program.launches(arrays), stream)
    maps = [written(p, 6, 2, 1, 32, 64, 64, 16, 16, 1, 1) for p in (256, 512)]
    assert found.launches == [
        ((1, 1, 1), (64, 1, 1), 0, stream, [*maps, HIGH + 768]) for stream in (None, HIGH + 1, None)
    ]
    assert found.calls == 2


@pytest.mark.usefixtures("library")
def test_a_waiting_kernel_takes_what_it_fetches(monkeypatch: pytest.MonkeyPatch) -> None:
    found = LaunchingLibrary((128, 128, 8, 8, 4, 4))
    program = loaded_maps(found, monkeypatch, ahead=True)
    arrays = [SimpleNamespace(pointer=HIGH + p) for p in (256, 512, 768)]
    program.launch(program.launches(arrays, Ahead(HIGH + 4096, 1000)))
    program.launch(program.launches(arrays))
    assert [given[2:] for *_, given in found.launches] == [
        [HIGH + 768, HIGH + 4096, 1008, 1000], [HIGH + 768, 0, 0, 0]
    ]  # fmt: skip


@pytest.mark.usefixtures("library")
def test_a_module_lives_as_long_as_its_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    found = LaunchingLibrary((128, 128, 8))
    first, second = loaded_maps(found, monkeypatch), loaded_maps(found, monkeypatch)
    calls = first.launches([SimpleNamespace(pointer=64)] * 3)
    assert found.modules == {1, 2}
    del second
    gc.collect()
    assert found.modules == {1}
    first.launch(calls)
    del first
    gc.collect()
    assert found.modules == {1} and len(found.launches) == 1
    del calls
    gc.collect()
    assert found.modules == set()


CALLS = "cuModuleLoadData", "cuModuleGetFunction", "cuFuncSetAttribute", "cuLaunchKernel"


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("call", CALLS)
def test_what_the_driver_refuses_is_one_sentence(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DeviceError, match=rf"^kernel boxes_kernel0: {call}: error 700$"):
        program = loaded_maps(LaunchingLibrary((128, 128, 8), call), monkeypatch)
        program.launch(program.launches([SimpleNamespace(pointer=64)] * 3))


def test_parameters_are_laid_out_once() -> None:
    rng, checked = random.Random(1), 0
    for _ in range(200):
        given = [rng.randbytes(128) if rng.random() < 0.5 else rng.randrange(1 << 64) for _ in range(rng.randint(1, 9))]
        room = tensor_maps.kernel_params(*given)
        assert tensor_maps.kernel_params(*given) is room
        places = (ctypes.c_void_p * len(given)).from_address(ctypes.addressof(room))
        end = ctypes.addressof(room) + ctypes.sizeof(room)
        for place, value in zip(places, given, strict=True):
            assert place is not None and place % 64 == 0 and place + 128 <= end
            want = value if isinstance(value, bytes) else struct.pack("<Q", value)
            assert ctypes.string_at(place, len(want)) == want
            checked += 1
    assert checked > 200


@emulated
@pytest.mark.parametrize("ahead", [False, True], ids=["plain", "waiting"])
def test_a_device_program_with_maps_on_the_emulated_device(ahead: bool) -> None:
    device, arrays = EmulatedDevice(), FOUR.arrays()
    device.numbers = SimpleNamespace(multiprocessors=1)
    facts = facts_from_json(json.loads(json.dumps(program_facts(FOUR.program()) | {"ahead": ahead})))
    source = FOUR.waiting() if ahead else FOUR.program().source
    program = DeviceProgram(device, [source.encode()], facts)
    held = [device.put(x) for x in arrays]
    for _ in range(2):
        program.launch(program.launches(held, Ahead(held[0].pointer, 16)))
    np.testing.assert_array_equal(device.get(held[1]), FOUR.want(arrays[0]))
    assert device.get(held[2]).tolist() == [2, 0, 0, 0]


class GraphDriver:
    """What a recorded kernel asks of the driver; `read` gives the parameters that it would pass."""

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any) -> int:
            if name == "cuStreamGetCaptureInfo_v2":
                self.nodes = (ctypes.c_void_p * 1)(77)
                ctypes.cast(args[4], ctypes.POINTER(ctypes.c_void_p))[0] = ctypes.addressof(self.nodes)
                ctypes.cast(args[5], ctypes.POINTER(ctypes.c_size_t))[0] = 1
            if name == "cuGraphExecKernelNodeSetParams_v2":
                assert args[1].value == 77
                places = (ctypes.c_void_p * 3).from_address(args[2]._obj.values)
                self.passed = [ctypes.string_at(p, n) for p, n in zip(places, (128, 128, 8), strict=True)]
            return 0

        return call


def test_maps_of_a_recorded_kernel_are_exchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = GraphDriver()
    monkeypatch.setattr(cuda_graph, "_driver", lambda: driver)
    first, second, third = [bytes(range(k, k + 128)) for k in (0, 64, 128)]
    kernel = RecordedKernel(SimpleNamespace(handle=1))
    for values in ([first, second, 4096], [third, first, (1 << 40) + 5]):
        kernel.exchange(ctypes.c_void_p(), values)
        assert driver.passed == [*values[:2], struct.pack("<Q", values[2])]


# ------------------------------------------------------------------------------------------------- exports


def arguments(program: CudaProgram) -> list[Argument]:
    return [Argument(b.name, b.dtype, tuple(b.shape), b.name != "A") for b in program.args]


def test_the_header_has_what_a_map_is_made_of(tmp_path: Path) -> None:
    program = FOUR.program()
    (tmp_path / "boxes.h").write_text(export.header(program, arguments(program), "sm_90"))
    (tmp_path / "main.c").write_text("""#include "boxes.h"
int main(void) {
  if (BOXES_MAPS != 2 || sizeof boxes_maps != 2 * sizeof *boxes_maps) return 1;
  for (unsigned k = 0; k < BOXES_MAPS; ++k) {
    const struct boxes_map *m = boxes_maps + k;
    if (m->kernel != 0 || m->argument != k || m->type != 6 || m->rank != 2 || m->swizzle != 1) return 2;
    if (m->extents[0] != 32 || m->extents[1] != 64 || m->strides[0] != 64) return 3;
    if (m->box[0] != 16 || m->box[1] != 16 || m->steps[0] != 1 || m->steps[1] != 1) return 4;
  }
  return boxes_kernels[0].argument_count != 1 || boxes_kernels[0].arguments[0] != 2 || boxes_scratch_bytes[0];
}
""")
    command = [*compiler_command(), "-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", f"-I{tmp_path}"]
    subprocess.run([*command, str(tmp_path / "main.c"), "-o", str(tmp_path / "main")], check=True)
    assert subprocess.run([str(tmp_path / "main")], check=False).returncode == 0
    text = (tmp_path / "boxes.h").read_text()
    assert "cuTensorMapEncodeTiled(map, type, rank," in text and "kernelParams" in text


def test_maps_of_one_axis_and_programs_without_maps(tmp_path: Path) -> None:
    program = FOUR.program()
    bare = replace(program, kernels=(replace(program.kernels[0], maps=()),))
    texts = [export.header(bare, arguments(bare), "sm_90"), export.loader("boxes", arguments(bare), bare.kernels)]
    assert not any(
        word in text
        for text in texts
        for word in ("map0", "ensorMap", "_MAPS", "stdint", "ctypes", "kernelParams", "annotations")
    )
    assert 'kernel(*given, grid=grid, block=block, shared=facts["dynamic_bytes"])' in texts[1]
    row = TensorMap(2, "int32", (4,), (4,), (1,), 0)
    one = replace(program, kernels=(replace(program.kernels[0], maps=(row,)),))
    assert "  {0, 2, 3, 1, {4}, {0}, {4}, {1}, 0, 0, {0}},\n" in export.header(one, arguments(one), "sm_90")


def test_the_loader_makes_maps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is a number in the fake of PyCUDA, 4096 and so on in the order in which it is taken."""
    program, taken = FOUR.program(), list[int]()

    def to_device(array: Any) -> int:
        taken.append(4096 * (len(taken) + 1))
        return taken[-1]

    driver = SimpleNamespace(
        to_device=to_device, memcpy_dtoh=lambda array, place: array.fill(place // 4096),
    )  # fmt: skip
    package = SimpleNamespace(driver=driver, autoprimaryctx=None)
    for name, part in (("pycuda", package), ("pycuda.driver", driver), ("pycuda.autoprimaryctx", package)):
        monkeypatch.setitem(sys.modules, name, part)
    (tmp_path / "boxes.py").write_text(export.loader("boxes", arguments(program), program.kernels))
    (tmp_path / "boxes.cubin").write_bytes(b"\x7fELF\0cubin")
    (tmp_path / "manifest.json").write_text(json.dumps({"launch": program_facts(program)}))
    found = LaunchingLibrary((128, 128, 8))
    monkeypatch.setattr(ctypes, "CDLL", found)
    spec = importlib.util.spec_from_file_location("exported_boxes", tmp_path / "boxes.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    arrays = FOUR.arrays()
    module.boxes(*arrays)
    maps = [written(p, 6, 2, 1, 32, 64, 64, 16, 16, 1, 1) for p in (4096, 8192)]
    assert found.launches == [((1, 1, 1), (64, 1, 1), 0, None, [*maps, 12288])]
    assert found.loaded == [b"\x7fELF\0cubin"] and found.attributes == [(8, 0)]
    assert (arrays[1] == 2).all() and (arrays[2] == 3).all()
    found.fails = "cuLaunchKernel"
    with pytest.raises(RuntimeError, match=r"^kernel boxes_kernel0: cuLaunchKernel: error 700$"):
        module.boxes(*arrays)
    found.code = 1
    with pytest.raises(RuntimeError, match="cuTensorMapEncodeTiled: error 1"):
        module.boxes(*arrays)
