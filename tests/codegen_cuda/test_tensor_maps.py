"""Kernels that take tensor maps: on the emulator, in facts, exports and recordings, and encoded for a driver."""

from __future__ import annotations

import ctypes
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

import te_lite as te
from ansor.core.device.exported_program import Argument
from ansor.core.errors import GraphError
from codegen_c.compile import compiler_command
from codegen_cuda import compile_source
from codegen_cuda.driver import export, tensor_maps
from codegen_cuda.driver.device import DeviceProgram
from codegen_cuda.emission.emit import emit
from codegen_cuda.emission.kernel_parts import TensorCores
from codegen_cuda.emulation.emulated_maps import tensor_map
from codegen_cuda.emulation.emulator import Launch, Memory, run_launches, run_program
from codegen_cuda.emulation.emulator_report import EmulatorError
from codegen_cuda.networks import cuda_graph
from codegen_cuda.networks.cuda_graph import RecordedKernel
from codegen_cuda.networks.network import CudaNetworkBackend
from codegen_cuda.program.cuda_program import CudaProgram, TensorMap, loads_in
from codegen_cuda.program.errors import DeviceError
from codegen_cuda.program.facts import facts_from_json, program_facts
from te_lite.loops.stmt import Buffer, LoweredFunc, Stmt
from tests.codegen_cuda.copy_kernels import COPIES, STRUCT
from tests.codegen_cuda.gpu_nests import HAVE_COMPILER, NO_COMPILER

emulated = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not on PATH: kernels cannot be emulated")
PLAIN = COPIES["swizzled over 128 bytes"]
FOUR = COPIES["four axes as two"]


# ------------------------------------------------------------------------------------------------- the emulator


@emulated
@pytest.mark.parametrize("name", COPIES)
def test_a_program_with_maps_runs(name: str) -> None:
    copy = COPIES[name]
    arrays = copy.arrays()
    run_program(copy.program(), arrays)
    np.testing.assert_array_equal(arrays[1], copy.want(arrays[0]))
    assert arrays[2].tolist() == [1, 0, 0, 0] and (arrays[1] != 1).sum() > 0


@emulated
def test_a_map_beyond_its_array_is_refused() -> None:
    program = replace(PLAIN, extents=(129, 64)).program()
    with pytest.raises(EmulatorError, match="argument 0, a tensor map: it must not reach beyond its array"):
        run_program(program, PLAIN.arrays())


@emulated
def test_maps_of_scratch_and_of_several_kernels() -> None:
    """The second kernel copies what the first has left in scratch memory; each has maps of its own."""
    copy = replace(PLAIN, at=(0, 0))
    one = copy.program()
    (kernel,), (a, b, count) = one.kernels, one.args
    maps = copy.maps()
    kernels = [
        replace(kernel, arguments=(2,), maps=(maps[0], replace(maps[1], argument=3))),
        replace(kernel, name="boxes_kernel1", arguments=(2,), maps=(replace(maps[0], argument=3), maps[1])),
    ]
    text = one.source.replace("void __launch_bounds__(64) boxes_kernel0", "void __launch_bounds__(64) NAME")
    start = text.index('extern "C"')
    source = text[:start] + "".join([text[start:].replace("NAME", k.name) for k in kernels])
    scratch = replace(a, name="between")
    arrays = copy.arrays()
    run_program(CudaProgram("boxes", source, (), tuple(kernels), (a, b, count), (scratch,)), arrays)
    np.testing.assert_array_equal(arrays[1], copy.want(arrays[0]))
    assert arrays[2][0] == 2


def test_a_kernel_that_waits_leaves_maps_where_they_were_passed() -> None:
    text = PLAIN.waiting()
    assert "boxes_kernel0_body(const TensorMap &map0, const TensorMap &map1, int *__restrict__ count) {" in text
    assert "boxes_kernel0(const __grid_constant__ TensorMap map0, const __grid_constant__ TensorMap map1, int *" in text
    assert "  boxes_kernel0_body(map0, map1, count);" in text and '"+l"(map' not in text


@emulated
def test_a_kernel_that_waits_runs() -> None:
    arrays, ahead = FOUR.arrays(), [np.zeros(16, np.uint8), np.uint32(0), np.uint32(0)]
    made = [tensor_map(np.empty(m.extents, m.dtype), m.argument, m.box, m.swizzle) for m in FOUR.maps()]
    memories = [Memory(f"given{k}", value, True) for k, value in enumerate([*arrays, *made, *ahead])]
    launch = Launch("boxes_kernel0", (1, 1, 1), (64, 1, 1), (3, 4, 2, 5, 6, 7), 0)
    run_launches(FOUR.waiting(), [launch], memories, True, 60.0)
    np.testing.assert_array_equal(arrays[1], FOUR.want(arrays[0]))


@pytest.mark.skipif(not HAVE_COMPILER, reason=NO_COMPILER)
@pytest.mark.parametrize("source", [PLAIN.program().source, PLAIN.waiting()], ids=["plain", "waiting"])
def test_the_parameters_compile(source: str) -> None:
    """No map is copied to memory of a thread: there the copy engine would not find it."""
    (found,) = compile_source(source, "sm_90").resources
    assert found.name == "boxes_kernel0" and found.stack == found.spills == 0


# ------------------------------------------------------------------------------------------------- emission


class ByMaps(TensorCores):
    """What an extension would answer: the inputs of a kernel are copied by maps, the first one by them alone."""

    def maps(self, body: Stmt, buffers: Sequence[Buffer]) -> tuple[TensorMap, ...]:
        read = [k for k, b in enumerate(buffers) if b in {x.buffer for x in loads_in(body)}]
        return tuple([TensorMap(k, "float32", (64,), (32,), (1,)) for k in read])

    def by_map(self, body: Stmt) -> set[Buffer]:
        return {x.buffer for x in loads_in(body) if x.buffer.name == "x"}


def added(first: str = "x", second: str = "y") -> LoweredFunc:
    x, y = te.placeholder((64,), name=first), te.placeholder((64,), name=second)
    out = te.compute((64,), lambda i: x[i] + y[i], name="out")
    s = te.create_schedule(out.op)
    s[out].bind(out.op.axis[0], te.thread_axis("threadIdx.x"))
    return te.lower(s, [x, y, out], "add")


@pytest.fixture
def by_maps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("codegen_cuda.emission.emit.tensor_cores_of", lambda body: ByMaps())


@pytest.mark.usefixtures("by_maps")
def test_maps_are_the_first_parameters_of_an_emitted_kernel() -> None:
    program = emit(added())
    (kernel,) = program.kernels
    assert [m.argument for m in kernel.maps] == [0, 1] and kernel.arguments == (1, 2)
    params = ", ".join([
        *[f"const __grid_constant__ TensorMap map{k}" for k in (0, 1)],
        "const float *__restrict__ y", "float *__restrict__ out",
    ])  # fmt: skip
    assert f"add_kernel0({params}) {{" in program.source
    for text in (program.source, *program.units):
        assert text.count(STRUCT) == 1 and text.index(STRUCT) < text.index("add_kernel0(")


@pytest.mark.usefixtures("by_maps")
def test_names_of_maps_are_not_those_of_arrays() -> None:
    source = emit(added("map0", "map1")).source
    assert "TensorMap map0, const" in source and "*__restrict__ map0_1, const float *__restrict__ map1_1," in source


@pytest.mark.usefixtures("by_maps")
def test_an_emitted_kernel_that_waits_takes_maps() -> None:
    text = emit(added(), waits=True).source
    assert "add_kernel0_body(const TensorMap &map0, const TensorMap &map1, const float *__restrict__ y," in text
    assert "add_kernel0(const __grid_constant__ TensorMap map0, const __grid_constant__ TensorMap map1, const " in text
    assert "  add_kernel0_body(map0, map1, y, out);" in text


@pytest.mark.usefixtures("by_maps")
def test_kernels_of_networks_keep_their_maps() -> None:
    code = CudaNetworkBackend().code(added(), "cuda -arch=sm_90")
    facts = facts_from_json(json.loads(json.dumps(code.facts)))
    assert [m["argument"] for m in facts["kernels"][0]["maps"]] == [0, 1] and facts["ahead"] is True


def test_kernels_without_maps_are_what_they_were() -> None:
    program = emit(added())
    assert program.kernels[0].maps == () and "TensorMap" not in program.source
    assert "add_kernel0(const float *__restrict__ x, const float *__restrict__ y, float *__restrict__ out) {" in (
        program.source
    )


# ----------------------------------------------------------------------------------------------------- facts


def test_facts_come_back() -> None:
    made = program_facts(FOUR.program())
    assert made["kernels"][0]["maps"] == [
        {"argument": k, "dtype": "float16", "extents": [64, 32], "box": [16, 16], "steps": [1, 1], "swizzle": 32}
        for k in (0, 1)
    ]
    assert facts_from_json(json.loads(json.dumps(made))) == made


def test_facts_without_maps_say_nothing_of_them() -> None:
    program = FOUR.program()
    bare = replace(program, kernels=(replace(program.kernels[0], maps=()),))
    names = ["name", "grid", "block", "arguments", "dynamic_bytes"]
    assert list(program_facts(bare)["kernels"][0]) == names
    assert facts_from_json(program_facts(bare)) == program_facts(bare)


REFUSED: dict[str, dict[str, Any]] = {
    "no such array": {"argument": 3},
    "a negative array": {"argument": -1},
    "no axis": {"extents": [], "box": [], "steps": []},
    "six axes": {"extents": [2] * 6, "box": [1] * 6, "steps": [1] * 6},
    "a box of other axes": {"box": [16]},
    "steps of other axes": {"steps": [1, 1, 1]},
    "an empty axis": {"extents": [0, 32]},
    "too much": {"extents": [1 << 39, 2]},
    "an empty box": {"box": [0, 16]},
    "a large box": {"box": [257, 16]},
    "no step": {"steps": [1, 0]},
    "a large step": {"steps": [9, 1]},
    "a dtype that no engine has": {"dtype": "complex64"},
    "a dtype that is none": {"dtype": 6},
    "a swizzle that no engine has": {"swizzle": 16},
    "a swizzle that is none": {"swizzle": None},
    "axes that are no list": {"extents": "64"},
    "axes that are no integers": {"box": [16.0, 16]},
}


@pytest.mark.parametrize("changes", REFUSED.values(), ids=REFUSED)
def test_facts_that_are_refused(changes: dict[str, Any]) -> None:
    made = json.loads(json.dumps(program_facts(FOUR.program())))
    made["kernels"][0]["maps"][1] |= changes
    with pytest.raises(GraphError) as refusal:
        facts_from_json(made)
    assert "\n" not in str(refusal.value)


def test_changed_facts() -> None:
    pytest.importorskip("onnxruntime")
    from tests.relay_lite.hostile_exports import changed_json

    rng, made, refused = random.Random(0), program_facts(FOUR.program()), 0
    for _ in range(500):
        try:
            found = facts_from_json(changed_json(rng, made))
        except GraphError as error:
            refused += 1
            assert "\n" not in str(error)
        else:
            maps = [m for k in found["kernels"] for m in k.get("maps", ())]
            assert all(len(m["extents"]) == len(m["box"]) == len(m["steps"]) for m in maps)
            assert all(type(n) is int for m in maps for n in (*m["extents"], *m["box"], *m["steps"], m["argument"]))
    assert 100 < refused < 500


# ------------------------------------------------------------------------------------------------- the driver


class FakeLibrary:
    """`cuTensorMapEncodeTiled` that writes what it was given, in the order of its header, and counts its calls."""

    def __init__(self, code: int = 0) -> None:
        self.code, self.calls = code, 0

    def __call__(self, name: str) -> FakeLibrary:
        assert name == "libcuda.so.1"
        return self

    def cuTensorMapEncodeTiled(
        self, place: Any, dtype: int, rank: int, address: Any, extents: Any, strides: Any, box: Any, steps: Any,
        interleave: int, swizzle: int, promotion: int, fill: int,
    ) -> int:  # fmt: skip
        self.calls += 1
        assert place.value % 64 == 0 and (interleave, promotion, fill) == (0, 2, 0)
        numbers = [address.value, dtype, rank, swizzle, *list(extents)[:rank], *list(strides)[: rank - 1]]
        numbers += [*list(box)[:rank], *list(steps)[:rank]]
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


class Function:
    """A kernel of PyCUDA that notes how it is called."""

    def __init__(self) -> None:
        self.types, self.calls = "", list[tuple[Any, ...]]()

    def prepare(self, types: str) -> None:
        self.types = types

    def prepared_async_call(self, grid: Any, block: Any, stream: Any, *values: Any, shared_size: int) -> None:
        self.calls.append(values)

    def prepared_call(self, grid: Any, block: Any, *values: Any, shared_size: int) -> None:
        assert (grid, block, shared_size) == ((1, 1, 1), (64, 1, 1), 0)
        self.calls.append(values)


def test_a_launch_passes_maps_before_pointers(library: Callable[..., FakeLibrary]) -> None:
    found, function = library(), Function()
    cuda = SimpleNamespace(module_from_buffer=lambda cubin: SimpleNamespace(get_function=lambda name: function))
    facts = facts_from_json(json.loads(json.dumps(program_facts(FOUR.program()))))
    program = DeviceProgram(SimpleNamespace(cuda=cuda), [b""], facts)  # type: ignore[arg-type]
    assert struct.calcsize(function.types) == 2 * 128 + 8 and function.types == "128s128sP"
    arrays = [SimpleNamespace(pointer=p) for p in (256, 512, 768)]
    for _ in range(3):
        program.launch(program.launches(arrays))
    maps = [written(p, 6, 2, 1, 32, 64, 64, 16, 16, 1, 1) for p in (256, 512)]
    assert function.calls == [(*maps, 768)] * 3 and found.calls == 2


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
    kernel = RecordedKernel(SimpleNamespace(handle=1), [first, second, 4096])
    kernel.exchange(ctypes.c_void_p(), [third, first, (1 << 40) + 5])
    assert driver.passed == [third, first, struct.pack("<Q", (1 << 40) + 5)]


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
    assert "cuTensorMapEncodeTiled(map, type, rank," in (tmp_path / "boxes.h").read_text()


def test_maps_of_one_axis_and_programs_without_maps(tmp_path: Path) -> None:
    program = FOUR.program()
    bare = replace(program, kernels=(replace(program.kernels[0], maps=()),))
    texts = [export.header(bare, arguments(bare), "sm_90"), export.loader("boxes", arguments(bare), bare.kernels)]
    assert not any(word in text for text in texts for word in ("map0", "ensorMap", "_MAPS", "stdint", "ctypes"))
    assert 'kernel(*given, grid=grid, block=block, shared=facts["dynamic_bytes"])' in texts[1]
    row = TensorMap(2, "int32", (4,), (4,), (1,), 0)
    one = replace(program, kernels=(replace(program.kernels[0], maps=(row,)),))
    assert "  {0, 2, 3, 1, {4}, {0}, {4}, {1}, 0},\n" in export.header(one, arguments(one), "sm_90")


def test_the_loader_makes_maps(
    library: Callable[..., FakeLibrary], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory is a number in the fake of PyCUDA, 4096 and so on in the order in which it is taken."""
    program, function, taken = FOUR.program(), Function(), list[int]()

    def to_device(array: Any) -> int:
        taken.append(4096 * (len(taken) + 1))
        return taken[-1]

    driver = SimpleNamespace(
        module_from_file=lambda path: SimpleNamespace(get_function=lambda name: function),
        to_device=to_device, memcpy_dtoh=lambda array, place: array.fill(place // 4096),
    )  # fmt: skip
    package = SimpleNamespace(driver=driver, autoprimaryctx=None)
    for name, part in (("pycuda", package), ("pycuda.driver", driver), ("pycuda.autoprimaryctx", package)):
        monkeypatch.setitem(sys.modules, name, part)
    (tmp_path / "boxes.py").write_text(export.loader("boxes", arguments(program), program.kernels))
    (tmp_path / "manifest.json").write_text(json.dumps({"launch": program_facts(program)}))
    spec = importlib.util.spec_from_file_location("exported_boxes", tmp_path / "boxes.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    library()
    arrays = FOUR.arrays()
    module.boxes(*arrays)
    maps = [written(p, 6, 2, 1, 32, 64, 64, 16, 16, 1, 1) for p in (4096, 8192)]
    assert function.types == "128s128sP" and function.calls == [(*maps, 12288)]
    assert (arrays[1] == 2).all() and (arrays[2] == 3).all()
    library(1)
    with pytest.raises(RuntimeError, match="cuTensorMapEncodeTiled: error 1"):
        module.boxes(*arrays)
