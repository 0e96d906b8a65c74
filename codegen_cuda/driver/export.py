"""Programs for use without this package: CUDA C++, cubin, launch parameters (JSON and C), a loader on PyCUDA.

A C program includes `NAME.h`, loads `NAME.cubin` through CUDA's driver API, and launches the kernels in order; Python
does `from NAME import NAME`.
"""

from __future__ import annotations

from collections.abc import Sequence
from inspect import getsource

from ansor.core.device.exported_program import (
    CHECKS,
    Argument,
    ExportedProgram,
    ProgramFiles,
    arguments_of,
    shapes_text,
    table_text,
)
from te_lite.expr.dtype import BYTES
from te_lite.loops.stmt import LoweredFunc

from ..program.cuda_program import CudaKernel, CudaProgram
from ..program.facts import facts_from_json, program_facts
from .architecture import check_architecture, target_architecture
from .module import CudaFunction, compiled_program
from .tensor_maps import MapKernel, encode_map, kernel_params, map_numbers


class CudaExporter:
    """Follows `ansor.core.device.exported_program.ProgramExporter`."""

    def files(self, func: LoweredFunc, target: str) -> ProgramFiles:
        """Needs a compiler; a device only where the target has no `-arch`.

        Raises LimitError, EmitError, CompileError, or DeviceError when no architecture is known.
        """
        arch, name, arguments = target_architecture(target), func.name, arguments_of(func)
        program, compiled = compiled_program(func, arch)
        texts = {
            f"{name}.cu": f"// nvcc -cubin -arch={arch} --std=c++17 {name}.cu\n{program.source}",
            f"{name}.h": header(program, arguments, arch),
            f"{name}.py": loader(name, arguments, program.kernels),
        }
        files = {**{file: text.encode() for file, text in texts.items()}, f"{name}.cubin": compiled.cubin}
        return ProgramFiles(files, {"architecture": arch}, program_facts(program))

    def load(self, program: ExportedProgram) -> CudaFunction:
        """Raises DeviceError without a GPU, GraphError for one of another architecture and launches that are none."""
        check_architecture(program.subject, program.content.machine, 0)
        facts = facts_from_json(dict(program.content.launch))
        source = program.file(f"{program.entry}.cu").decode(errors="replace")
        return CudaFunction(program.arguments, source, program.entry, program.file(f"{program.entry}.cubin"), facts)


def header(program: CudaProgram, arguments: Sequence[Argument], arch: str) -> str:
    """How the kernels are launched, as constants of C."""
    name, kernels = program.name, program.kernels
    scratch = [b.size * BYTES[b.dtype] for b in program.scratch]
    most = max(len(k.arguments) for k in kernels)
    rows = [
        f'  {{"{k.name}", {_braces(k.grid)}, {_braces(k.block)}, {k.dynamic_bytes}, {len(k.arguments)},'
        f" {_braces(k.arguments)}}},"
        for k in kernels
    ]
    guard = f"ANSOR_{name.upper()}_H"
    lines = [
        f"/* {name} for {arch}: {shapes_text(arguments)}", "",
        "   Load the cubin by cuModuleLoad and launch the kernels in order by cuLaunchKernel.  Each takes pointers:",
        "   its arguments count the arrays above, then the scratch memories, all on the device and row-major.",
        "   Where dynamic_bytes is not 0, set CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES to it first. */",
        f"#ifndef {guard}", f"#define {guard}", "",
        "#include <stddef.h>", "",
        f"#define {name.upper()}_KERNELS {len(kernels)}",
        f"#define {name.upper()}_SCRATCHES {len(scratch)}", "",
        f"struct {name}_kernel {{",
        "  const char *name;",
        "  unsigned grid[3], block[3], dynamic_bytes, argument_count;",
        f"  unsigned arguments[{max(most, 1)}];",
        "};", "",
        f"static const struct {name}_kernel {name}_kernels[] = {{", *rows, "};", "",
        f"static const size_t {name}_scratch_bytes[] = {_braces(scratch or [0])};", "",
        *_map_lines(name, kernels), "#endif",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _map_lines(name: str, kernels: Sequence[CudaKernel]) -> list[str]:
    """The tensor maps of kernels, with what `cuTensorMapEncodeTiled` takes of each."""
    maps = [(k, m.argument, *map_numbers(m)) for k, kernel in enumerate(kernels) for m in kernel.maps]
    parts = [[_braces(x or (0,)) if isinstance(x, tuple) else str(x) for x in row] for row in maps]
    lines = [
        "/* A kernel takes its tensor maps before its pointers, in the order below: values of 128 bytes, made at",
        "   multiples of 64 by cuTensorMapEncodeTiled(map, type, rank, pointer of its argument, extents, strides, box,",
        "   steps, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_128B, 0); one with corners",
        "   by cuTensorMapEncodeIm2col, with corners + 2, corners, box[0], box[3] for the box.  Launch it with",
        "   kernelParams: the buffer of CU_LAUNCH_PARAM_BUFFER_POINTER is not put where such a kernel reads. */",
        "#include <stdint.h>", "",
        f"#define {name.upper()}_MAPS {len(maps)}", "",
        f"struct {name}_map {{",
        "  unsigned kernel, argument, type, rank;",
        "  uint64_t extents[5], strides[4];",
        "  uint32_t box[5], steps[5], swizzle, numbers;", "  int corners[4];",
        "};", "",
        f"static const struct {name}_map {name}_maps[] = {{", *[f"  {{{', '.join(row)}}}," for row in parts], "};", "",
    ]  # fmt: skip
    return lines if maps else []


def _braces(numbers: Sequence[int]) -> str:
    return f"{{{', '.join(map(str, numbers))}}}"


KERNELS = """_kernels = [(_module.get_function(facts["name"]), facts) for facts in _launch["kernels"]]
for _kernel, _facts in _kernels:
    if _facts["dynamic_bytes"]:
        _kernel.set_attribute(cuda.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES, _facts["dynamic_bytes"])"""
CALL = 'kernel(*given, grid=grid, block=block, shared=facts["dynamic_bytes"])'
MODULES = "from __future__ import annotations\n\nimport ctypes\nimport functools\nimport weakref\n"
KERNELS_WITH_MAPS = """# of each kernel: the argument, and what cuTensorMapEncodeTiled takes besides its address
_MAPS = {maps}
DeviceError = RuntimeError


{functions}

with open(os.path.join(_FOLDER, "{name}.cubin"), "rb") as _file:
    _cubin = _file.read()
_kernels = [(MapKernel(_cubin, facts["name"], facts["dynamic_bytes"]), facts) for facts in _launch["kernels"]]"""
CALL_WITH_MAPS = """maps = [encode_map(int(memory[place]), *numbers) for place, *numbers in _MAPS[facts["name"]]]
        values = [*maps, *map(int, given)]
        kernel.prepared_async_call(grid, block, None, *values, shared_size=facts["dynamic_bytes"])"""


def loader(name: str, arguments: Sequence[Argument], kernels: Sequence[CudaKernel]) -> str:
    """A module of Python that launches the kernels of the cubin beside it; it needs NumPy and PyCUDA only."""
    maps = {k.name: [(m.argument, *map_numbers(m)) for m in k.maps] for k in kernels}
    functions = "\n\n".join([getsource(encode_map), getsource(kernel_params), getsource(MapKernel)])
    mapped = any(maps.values())
    launched = KERNELS_WITH_MAPS.format(name=name, maps=maps, functions=functions) if mapped else KERNELS
    loaded = "" if mapped else f'_module = cuda.module_from_file(os.path.join(_FOLDER, "{name}.cubin"))\n'
    return f'''"""{name}(...) of NumPy arrays: {shapes_text(arguments)}.  Needs NumPy and PyCUDA only."""

{MODULES if mapped else ""}import json
import os.path

import numpy as np
import pycuda.autoprimaryctx  # noqa: F401
import pycuda.driver as cuda

{table_text(arguments)}_FOLDER = os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(_FOLDER, "manifest.json")) as _file:
    _launch = json.load(_file)["launch"]
{loaded}_scratch = [cuda.mem_alloc(max(count, 1)) for count in _launch["scratch_bytes"]]
{launched}


def {name}(*arrays):
{CHECKS}    memory = [*map(cuda.to_device, arrays), *_scratch]
    for kernel, facts in _kernels:
        given = [memory[place] for place in facts["arguments"]]
        grid, block = tuple(facts["grid"]), tuple(facts["block"])
        {CALL_WITH_MAPS if mapped else CALL}
    for array, place, (_, _, _, written) in zip(arrays, memory, ARGUMENTS):
        if written:
            cuda.memcpy_dtoh(array, place)
'''
