"""codegen_cuda: lowered GPU programs as CUDA C++ source and compiled cubins.  Nothing here needs a GPU or a driver.

Read them in this order; none imports one that comes after it:

    folders       program, passes, text, overlap, emission, driver, networks, emulation
    the search    backend
"""

from .driver.compile import CompiledModule, available_compilers, compile_source, compiler_name
from .driver.resources import KernelResources
from .emission.emit import emit
from .emission.limits import KernelUsage, Limits, check_limits, require_limits, usage
from .program.cuda_program import CudaKernel, CudaProgram
from .program.errors import CompileError, EmitError, LimitError

__all__ = [
    "CompileError", "CompiledModule", "CudaKernel", "CudaProgram", "EmitError", "KernelResources", "KernelUsage",
    "LimitError", "Limits", "available_compilers", "check_limits", "compile_source", "compiler_name",
    "emit", "require_limits", "usage",
]  # fmt: skip
