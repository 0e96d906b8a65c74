#!/usr/bin/env bash
# nvidia-cuda-nvrtc 13.0.88 (the wheel that torch 2.11.0 and 2.14.1 bring), Linux x86-64, no GPU needed.
#
# One would expect: libnvrtc.so.13, loaded by its path, compiles; the one library that it opens while it compiles,
# libnvrtc-builtins.so.13.0, lies in the same folder of the same wheel.
# What happens: every compilation ends with NVRTC_ERROR_BUILTIN_OPERATION_FAILURE (7).  The library has no run path, so
# it looks for the other one where the system does, and not beside itself.  Loaded beforehand, by its path, it is found.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install -q --disable-pip-version-check nvidia-cuda-nvrtc==13.0.88 2> /dev/null
cat > "$folder/compile.py" <<'PYTHON'
import ctypes
import glob
import sys

(lib,) = glob.glob(f"{sys.prefix}/lib/python*/site-packages/nvidia/cu13/lib")
if sys.argv[1] == "with":
    ctypes.CDLL(f"{lib}/libnvrtc-builtins.so.13.0", mode=ctypes.RTLD_GLOBAL)
nvrtc = ctypes.CDLL(f"{lib}/libnvrtc.so.13")
program = ctypes.c_void_p()
source = b'extern "C" __global__ void twice(float *x) { x[threadIdx.x] *= 2; }'
assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, b"twice.cu", 0, None, None) == 0
print(nvrtc.nvrtcCompileProgram(program, 1, (ctypes.c_char_p * 1)(b"-arch=sm_90")))
PYTHON
without=$("$folder/venv/bin/python" "$folder/compile.py" without)
with=$("$folder/venv/bin/python" "$folder/compile.py" with)
echo "result of nvrtcCompileProgram: $without; with the other library loaded before: $with"
[ "$without" = 7 ] && [ "$with" = 0 ]
