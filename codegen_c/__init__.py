"""codegen_c: lowered programs as C source, compiled by the system's C compiler and called on NumPy arrays."""

from te_lite.timing import Timing

from .emit import emit
from .errors import CallError, CompileError, EmitError
from .module import Module, build
from .processor import Options, host_options

__all__ = ["CallError", "CompileError", "EmitError", "Module", "Options", "Timing", "build", "emit", "host_options"]
