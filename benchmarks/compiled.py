"""Sources that are compiled side by side."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from codegen_cuda import CompiledModule, CompileError, compile_source


def compile_many(
    sources: Sequence[str], arch: str = "sm_90", workers: int | None = None, use_cache: bool = True
) -> list[CompiledModule | CompileError]:
    """Compile on so many threads; refused sources give their error."""

    def one(source: str) -> CompiledModule | CompileError:
        try:
            return compile_source(source, arch, use_cache=use_cache)
        except CompileError as error:
            return error

    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(one, sources))
