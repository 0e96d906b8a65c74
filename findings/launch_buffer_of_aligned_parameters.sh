#!/usr/bin/env bash
# libcuda.so.1 of CUDA 13.0 (cuDriverGetVersion gives 13000), Linux x86-64; a GPU of compute capability 9.0 is needed.
# Nothing is installed: Python's ctypes, and the driver assembles the PTX of the kernels.
#
# A kernel takes one parameter of 128 bytes, as a __grid_constant__ CUtensorMap is, and each of 32 threads notes one
# word of it.  The words are 1, 2, ..., 32.  cuLaunchKernel takes parameters in two ways: by `kernelParams`, an array of
# pointers to them, or by `extra`, as one buffer (CU_LAUNCH_PARAM_BUFFER_POINTER), here with the parameter at its start.
# One would expect: both ways give the kernel the same words, whatever the alignment of the parameter is.
# What happens: they do where the parameter is aligned to 16 bytes.  Where it is aligned to 64, as a CUtensorMap is,
# `extra` gives the words that lie 48 bytes further on: the first one is 13, and the last twelve are none of the buffer.
# With 48 bytes in front of the parameter in the buffer they are right.  ptxas 13.0 lets code for sm_90 read the
# parameter of 16 at 0x210 of the constant bank, and that of 64 at 0x240, which is 48 bytes further on.
# PyCUDA's prepared calls launch by `extra`, so they cannot launch kernels that take a CUtensorMap.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat > "$folder/launch.py" <<'PYTHON'
"""The words that a kernel sees of its parameter, by alignment and way of the launch."""
import ctypes
import sys

# __device__ unsigned seen[32];
# struct alignas(64) Words { unsigned word[32]; };
# extern "C" __global__ void look(const __grid_constant__ Words given) { seen[threadIdx.x] = given.word[threadIdx.x]; }
PTX = """
.version 7.8
.target sm_90
.address_size 64
.visible .global .align 4 .b8 seen[128];
.visible .entry look(.param .align ALIGNMENT .b8 given[128]) {
  .reg .b32 %r<3>;
  .reg .b64 %rd<6>;
  mov.b64 %rd1, given;
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %rd2, %r1, 4;
  add.s64 %rd3, %rd1, %rd2;
  ld.param.u32 %r2, [%rd3];
  mov.u64 %rd4, seen;
  add.s64 %rd5, %rd4, %rd2;
  st.global.u32 [%rd5], %r2;
  ret;
}
"""
POINTER, SIZE, END = 1, 2, 0
"""CU_LAUNCH_PARAM_BUFFER_POINTER, CU_LAUNCH_PARAM_BUFFER_SIZE and CU_LAUNCH_PARAM_END."""
GIVEN = list(range(1, 33))
MAJOR, MINOR = 75, 76
"""CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR."""
NEEDED = "a GPU of compute capability 9.0 with its driver is needed"

try:
    cuda = ctypes.CDLL("libcuda.so.1")
except OSError as error:
    sys.exit(f"{NEEDED}: {error}")


def call(name: str, *arguments: object) -> None:
    code = getattr(cuda, name)(*arguments)
    if code:
        sys.exit(f"{name}: error {code}")


version, device, context = ctypes.c_int(), ctypes.c_int(), ctypes.c_void_p()
numbers = [ctypes.c_int(), ctypes.c_int()]
if cuda.cuInit(0) or cuda.cuDeviceGet(ctypes.byref(device), 0):
    sys.exit(f"{NEEDED}: the driver shows none")
for number, attribute in zip(numbers, (MAJOR, MINOR)):
    call("cuDeviceGetAttribute", ctypes.byref(number), attribute, device)
if [n.value for n in numbers] != [9, 0]:
    sys.exit(f"{NEEDED}: this one has {numbers[0].value}.{numbers[1].value}")
call("cuDriverGetVersion", ctypes.byref(version))
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
call("cuCtxSetCurrent", context)


def seen(alignment: int, front: int | None) -> list[int]:
    """By `kernelParams` where `front` is None, else by a buffer with so many zero bytes in front of the parameter."""
    module, function, place, size = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_size_t()
    call("cuModuleLoadData", ctypes.byref(module), PTX.replace("ALIGNMENT", str(alignment)).encode())
    call("cuModuleGetFunction", ctypes.byref(function), module, b"look")
    call("cuModuleGetGlobal_v2", ctypes.byref(place), ctypes.byref(size), module, b"seen")
    assert size.value == 128
    words = (ctypes.c_uint32 * (32 + (front or 0) // 4))(*[0] * ((front or 0) // 4), *GIVEN)
    params = extra = None
    if front is None:
        params = (ctypes.c_void_p * 1)(ctypes.addressof(words))
    else:
        length = ctypes.c_size_t(ctypes.sizeof(words))
        extra = (ctypes.c_void_p * 5)(POINTER, ctypes.addressof(words), SIZE, ctypes.addressof(length), END)
    call("cuLaunchKernel", function, 1, 1, 1, 32, 1, 1, 0, None, params, extra)
    found = (ctypes.c_uint32 * 32)()
    call("cuMemcpyDtoH_v2", found, place, ctypes.c_size_t(128))
    call("cuModuleUnload", module)
    return list(found)


print("driver", version.value)
ways = {"kernelParams": None, "extra": 0, "extra, 48 bytes in front": 48}
results = {(a, way): seen(a, front) for a in (16, 64) for way, front in ways.items()}
for (alignment, way), words in results.items():
    print(f"aligned to {alignment}, {way}:", *words)
assert results[16, "kernelParams"] == results[16, "extra"] == GIVEN
assert results[64, "kernelParams"] == GIVEN
assert results[64, "extra"] != GIVEN and results[64, "extra"][:20] == GIVEN[12:]
assert results[64, "extra, 48 bytes in front"] == GIVEN
PYTHON
python3 "$folder/launch.py"
