"""Networks with open extents: each group is compiled once, as a program for all sizes."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import Any

from ansor.core.target.target import Target
from te_lite.errors import TeError
from te_lite.extensions import required_part
from te_lite.lowering.lower import lower

from ..ir.errors import GraphError
from ..ir.nodes import Function
from ..ir.visit import function_calls
from ..op.lower_group import lower_group
from ..runtime.assemble import GroupKernel, reshaped_params
from ..runtime.open_library import OpenCode, OpenLibrary
from .group_programs import arguments_of, results_of


def build_open(fused: Function, target: Target, pool: Executor) -> OpenLibrary:
    """Compile a graph of groups with open extents, the result of `optimize`, in the threads of `pool`.

    Every group gets a default program, that of the greatest sizes.  Raises GraphError for a target other than `c`,
    for a group that has no program for all sizes, and for a size that is no extent of an input.
    """
    networks = required_part("open_network")(target)
    groups = dict.fromkeys([c.function for c in function_calls(fused.body) if reshaped_params(c.function) is None])
    made = {function: _kernel(networks, function, target) for function in groups}
    waiting = {k.code.name: pool.submit(networks.machine_code, k.code) for k, _ in made.values()}
    compiled = {name: code.result() for name, code in waiting.items()}
    kernels = tuple([kernel for kernel, _ in made.values()])
    driver, binary = networks.library(kernels, compiled)
    code = OpenCode(networks, kernels, {function: call for function, (_, call) in made.items()}, driver, binary)
    return OpenLibrary.of(fused, target, code)


def _kernel(networks: Any, function: Function, target: Target) -> tuple[Any, GroupKernel]:
    """The kernel of a group, and how a plan calls it."""
    with _naming(function):
        group = lower_group(function, target.kind.name)
        state = networks.default_state(group.dag)
        kernel = networks.kernel(lower(state, list(dict.fromkeys(group.tensors)), group.name))
    code, arguments, results = kernel.code, arguments_of(function, group), results_of(function, group)
    return kernel, GroupKernel(code.name, arguments, results, code.scratch, code.over)


@contextmanager
def _naming(function: Function) -> Iterator[None]:
    """Errors name the kernel."""
    try:
        yield
    except TeError as error:
        name = str(function.attrs.get("name", "main"))
        raise error if name in str(error) else GraphError(f"kernel {name}: {error}") from error
