"""Kernels that take tensor maps: on the emulator, emitted, and in facts."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import te_lite as te
from ansor.core.errors import GraphError
from codegen_cuda import compile_source
from codegen_cuda.emission.emit import emit
from codegen_cuda.emission.kernel_parts import TensorCores
from codegen_cuda.emulation.emulated_maps import tensor_map
from codegen_cuda.emulation.emulator import Launch, Memory, run_launches, run_program
from codegen_cuda.emulation.emulator_report import EmulatorError
from codegen_cuda.networks.network import CudaNetworkBackend
from codegen_cuda.program.cuda_program import TFLOAT32, CudaProgram, TensorMap, loads_in
from codegen_cuda.program.facts import facts_from_json, program_facts
from te_lite.loops.stmt import Buffer, LoweredFunc, Stmt
from tests.codegen_cuda.copy_kernels import COPIES, STRUCT
from tests.codegen_cuda.gpu_nests import HAVE_COMPILER, NO_COMPILER
from tests.nonempty import nonempty

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
        {
            "argument": k,
            "dtype": "float16",
            "extents": [64, 32],
            "box": [16, 16],
            "steps": [1, 1],
            "swizzle": 32,
            "margins": [],
        }
        for k in (0, 1)
    ]
    assert facts_from_json(json.loads(json.dumps(made))) == made
    older = json.loads(json.dumps(made))
    for m in nonempty(older["kernels"][0]["maps"]):
        del m["margins"]
    assert facts_from_json(older) == made
    made["kernels"][0]["maps"][0]["dtype"] = TFLOAT32
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
    "margins of other axes": {"margins": [1, 1, 1, 1]},
    "margins that are no integers": {"margins": [0.5]},
    "large margins": {"extents": [2] * 4, "box": [1] * 4, "steps": [1] * 4, "margins": [1, 1, 1, 129]},
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
