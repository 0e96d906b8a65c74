"""codegen_cuda: lowered GPU programs as CUDA C++ source and compiled cubins.  Nothing here needs a GPU or a driver."""

from .compile import CompiledModule, available_compilers, compile_many, compile_source, compiler_name
from .cuda_program import CudaKernel, CudaProgram
from .emit import emit
from .errors import CompileError, EmitError, LimitError
from .limits import KernelUsage, Limits, check_limits, require_limits, usage
from .resources import KernelResources

__all__ = [
    "CompileError", "CompiledModule", "CudaKernel", "CudaProgram", "EmitError", "KernelResources", "KernelUsage",
    "LimitError", "Limits", "available_compilers", "check_limits", "compile_many", "compile_source", "compiler_name",
    "emit", "require_limits", "usage",
]  # fmt: skip
