"""Extensions: the table of what Ansor's paper does not have, and how each of them is found.

An extension is a folder of `ansor_ext`, which stands above all that it extends and which nobody imports: this table
names what each folder offers, the core asks the table, and the folder is imported when an offer is taken.  What is
installed is used, unless `ANSOR_EXTENSIONS` or `using` choose; whoever chooses one gets those that it needs, too.
A folder that was deleted offers nothing, and neither does one that needs it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from typing import Any, Literal

from .environment import ANSOR_EXTENSIONS
from .errors import TeError, require
from .later import when_called

ALL, NONE = "all", "none"
GPU, CPU = "gpu", "cpu"
SPLIT, SHARED = "split_reductions", "shared_tiles"


@dataclass(frozen=True, slots=True)
class Offer:
    """A function of an extension.

    `name`: what users call it; `where`: its module in the folder, and the function; `priority`: offers are taken in
    this order, on which the draws of a search depend; `on`: the only processors that it is for; `sums`: it is for
    computations with reductions alone; `also`: extensions that it needs beside those of its folder; `alone`: of default
    programs, where there are some, no others are tried; `dtype`: that of the sums that it is for.
    """

    name: str
    where: str
    priority: int
    on: str = ""
    sums: bool = False
    also: tuple[str, ...] = ()
    alone: bool = False
    dtype: str = ""

    def applies(self, computation: Any, gpu: bool) -> bool:
        """Whether it may have something for a `Computation`, on a GPU or not; this costs no import."""
        there = not self.sums or any(op.reduce_axis and self.dtype in ("", op.dtype) for op in computation.ops)
        there = there and not any(op.scans for op in computation.ops)
        return there and self.on in ("", GPU if gpu else CPU)


@dataclass(frozen=True, slots=True)
class Letters:
    """A kind of steps: its letters in records, its class as `module:class`, and the primitive that makes it."""

    letters: str
    where: str
    primitive: str


@dataclass(frozen=True, slots=True)
class Extension:
    """`steps` are the kinds of steps that it brings; they are read whenever it is installed.

    `sketches` are sketch rules: functions from a `SketchContext` to states.
    `programs` make default programs: functions from a task, and a function that makes its sketches, to states.
    `parts` stand in for what the core does in a simpler way; each is asked by its name (`part`).
    """

    name: str
    needs: tuple[str, ...] = ()
    sketches: tuple[Offer, ...] = ()
    programs: tuple[Offer, ...] = ()
    parts: tuple[Offer, ...] = ()
    steps: tuple[Letters, ...] = ()


EXTENSIONS: tuple[Extension, ...] = (
    Extension("analysis"),
    Extension(
        "axes", steps=(Letters("RIX", "steps:Reindex", "s.reindex"), Letters("JAX", "steps:JoinAxes", "s.join_axes"))
    ),
    Extension(
        "online",
        steps=(
            Letters("JRD", "steps:JoinReductions", "s.join_reductions"),
            Letters("CAL", "steps:ComputeAlong", "s[C].compute_along"),
            Letters("PDV", "steps:PostponeDivision", "s.postpone_division"),
            Letters("CPT", "steps:CarryParts", "s.carry_parts")),
    ),
    Extension(
        "split_reductions", ("analysis",),
        (Offer("split_reduction", "split_reduction:split_reduction_sketches", 10, "", True),),
    ),
    Extension("injective", ("analysis",), (Offer("injective", "injective:injective_sketches", 20),)),
    Extension(
        "rows", ("analysis", "online"),
        (Offer("rows", "rules:row_program_sketches", 30, "", True),
         Offer("long_rows", "long_rows:long_row_sketches", 40, GPU, True)),
    ),
    Extension(
        "cpu_kernels", ("analysis", "axes"),
        (
            Offer("packed_read", "operands:packed_read_sketches", 50, CPU, True),
            Offer("micro_kernel", "long_products:product_sketches", 60, CPU, True),
            Offer("joined_rows", "joined_rows:joined_row_sketches", 70, CPU, True),
            Offer("joined_columns", "joined_rows:joined_column_sketches", 80, CPU, True),
            Offer("shared_panels", "shared_panels:shared_panel_sketches", 90, CPU, True),
            Offer("byte_products", "byte_products:byte_product_sketches", 230, CPU, True, dtype="int32"),
        ),
        (Offer("byte_product", "byte_products:byte_product_states", 40, CPU, True, alone=True, dtype="int32"),),
    ),
    Extension("winograd", ("cpu_kernels",), (Offer("winograd", "winograd:winograd_sketches", 100, "", True),)),
    Extension("windows", ("cpu_kernels",), (Offer("windows", "windows:window_sketches", 110, CPU, True),)),
    Extension("shared_tiles", ("analysis",), (Offer("padded_shared", "padded_shared:padded_sketches", 120, GPU),)),
    Extension(
        "pipeline", ("analysis",),
        (
            Offer("double_buffer", "ahead:double_buffer_sketches", 130, GPU),
            Offer("split_reduction_ahead", "split_ahead:split_sketches", 160, GPU, True, also=(SPLIT,)),
            Offer("transposed_shared_ahead", "shared_ahead:transposed_sketches", 180, GPU, also=(SHARED,)),
        ),
        parts=(Offer("cuda_pipelines", "emission:CudaPipelines", 30, GPU),),
        steps=(
            Letters("DBF", "steps:DoubleBuffer", "s[C].double_buffer"),
            Letters("PIP", "steps:Pipeline", "s[C].pipeline"),
        ),
    ),
    Extension("skinny", (SPLIT,), (Offer("skinny", "skinny:skinny_sketches", 140, GPU, True),)),
    Extension(
        "register_tiles", (SPLIT, SHARED, "pipeline"),
        (Offer("register_tiles", "register_tiles:register_tile_sketches", 190, GPU, True),
         Offer("sliced_tiles", "sliced_tiles:sliced_sketches", 200, GPU, True)),
        (Offer("convolution_tiles", "convolution_tiles:convolution_states", 10, GPU, True, alone=True),
         Offer("product_tiles", "product_programs:large_product_states", 20, GPU, True)),
        (Offer("few_threads", "few_threads:few_threads", 130, GPU, True),),
    ),
    Extension(
        "tensor_core", (SPLIT, "pipeline", "axes"),
        (Offer("tensor_core", "tensor_core:tensor_core_sketches", 210, GPU, True),),
        (Offer("tensor_core_tiles", "product_programs:large_product_states", 30, GPU, True),),
        (
            Offer("grids", "warp_tiles:grids", 10, GPU, True),
            Offer("fragment_costs", "estimate:fragment_costs", 20, GPU, True),
            Offer("cuda_tensor_cores", "emission:CudaTensorCores", 40, GPU, True),
            Offer("fragments", "fragment_storage:fragment_storage", 50, GPU),
            Offer("fragment_layout", "layouts:Fragments", 60, GPU),
            Offer("s[C].split_fragment", "split_fragment:split_fragment", 70, GPU),
            Offer("fragments_ahead", "fragment_double_buffer:fragment_multiplies", 80, GPU, True),
            Offer("on_tensor_cores", "product_roles:roles_of", 90, GPU, True),
            Offer("pictures", "pictures:pictures", 100),
            Offer("emulated_instruction", "emulated_ptx:emulated_instruction", 110, GPU),
        ),
        (Letters("SWZ", "steps:Swizzled", "s[C].swizzle"), Letters("PRT", "steps:InParts", "s.in_parts")),
    ),
    Extension(
        "attention", ("tensor_core", "online"), (Offer("attention", "attention:attention_sketches", 220, GPU, True),)
    ),
    Extension("streaming", ("analysis",), parts=(Offer("streaming", "streaming:streaming", 120, GPU),)),
    Extension("transfer", parts=(Offer("transfer", "similar:Similar", 10),)),
    Extension("open_sizes", parts=(
        Offer("open_program", "fit:open_program", 140), Offer("open_module", "call:OpenModule", 150),
        Offer("open_cuda_module", "cuda:OpenCudaModule", 160), Offer("at_sizes", "grids:at_sizes", 170),
        Offer("open_grid", "grids:open_grid", 180), Offer("open_task", "task:OpenTask", 190),
        Offer("open_network", "network:OpenNetworks", 200))),
    Extension("shipped_model", parts=(Offer("shipped_trees", "trees:trees_of", 20),)),
)  # fmt: skip
"""All extensions, each after those that it needs."""

BY_NAME = {extension.name: extension for extension in EXTENSIONS}
STEPS = {kind.letters: (extension.name, kind) for extension in EXTENSIONS for kind in extension.steps}
"""The kinds of steps of extensions by their letters: whose they are, and what."""


def with_needs(name: str) -> frozenset[str]:
    """An extension, and all that it needs."""
    return frozenset({name}).union(*map(with_needs, BY_NAME[name].needs))


@lru_cache(maxsize=64)
def is_installed(name: str) -> bool:
    """Whether the folder of an extension is there, and those that it needs."""
    specs = [find_spec(f"ansor_ext.{each}") if find_spec("ansor_ext") else None for each in with_needs(name)]
    return all(spec is not None and spec.origin is not None for spec in specs)


def chosen() -> frozenset[str]:
    """The names of the extensions that are used.  Raises TeError where `ANSOR_EXTENSIONS` names an unknown one."""
    return _chosen(ANSOR_EXTENSIONS.text)


@lru_cache(maxsize=64)
def _chosen(text: str) -> frozenset[str]:
    names = [] if text == NONE else list(BY_NAME) if text == ALL else [name.strip() for name in text.split(",")]
    for name in names:
        owner = "".join([f"it is a rule of {e.name}; " for e in EXTENSIONS for rule in e.sketches if rule.name == name])
        law = f"{owner}there are {', '.join(BY_NAME)}; {ALL!r} and {NONE!r} stand alone"
        require(name in BY_NAME, TeError, "extensions", law, got=name)
    return frozenset(used for name in names for used in with_needs(name) if is_installed(used))


def using(names: str | Sequence[str]) -> AbstractContextManager[None]:
    """`with using("rows, skinny"):` uses these extensions, and those that they need; also `"all"` and `"none"`.

    Processes that are started within use the same; without `with`, nothing changes.  Raises TeError for a name that is
    unknown.
    """
    text = names if isinstance(names, str) else ",".join(names) or NONE
    _chosen(text)
    return ANSOR_EXTENSIONS.set_to(text)


@dataclass(frozen=True, slots=True)
class Taken:
    """An offer of an extension that is used: called, it imports the folder."""

    extension: str
    offer: Offer

    def __call__(self, *args: Any, **named: Any) -> Any:
        return when_called(*module_of(self.extension, self.offer.where))(*args, **named)


def offers(kind: Literal["sketches", "programs", "parts"]) -> Mapping[str, Taken]:
    """The offers of a kind by the extensions that are used, by name, in the order of their priorities."""
    return _offers(kind, chosen())


@lru_cache(maxsize=64)
def _offers(kind: str, used: frozenset[str]) -> Mapping[str, Taken]:
    found = [
        Taken(extension.name, offer)
        for extension in EXTENSIONS
        if extension.name in used
        for offer in getattr(extension, kind)
        if used.issuperset(offer.also)
    ]
    return {taken.offer.name: taken for taken in sorted(found, key=lambda taken: taken.offer.priority)}


def module_of(extension: str, where: str) -> tuple[str, str]:
    """The full name of a module of an extension, and the name in it, of `module:name`."""
    module, _, name = where.partition(":")
    return f"ansor_ext.{extension}.{module}", name


def part(name: str) -> Taken | None:
    """A part of the core's that an extension has; None where none is used."""
    return offers("parts").get(name)


def installed_part(name: str) -> Taken | None:
    """A part of an extension that is installed, whether it is used by searches or not: programs are read and run."""
    return installed_parts().get(name)


def required_part(name: str) -> Taken:
    """A part that nothing stands in for.  Raises TeError where no extension has it that is installed."""
    found = installed_part(name)
    require(found is not None, TeError, name, needed_for(name))
    assert found is not None
    return found


def needed_for(part: str) -> str:
    """The law that is broken where a part is asked for that no extension has that is installed."""
    owners = [e.name for e in EXTENSIONS for offer in e.parts if offer.name == part]
    return f"the extension {owners[0]!r} is needed"


def installed_parts() -> Mapping[str, Taken]:
    """All parts of extensions that are installed, by name."""
    return _offers("parts", frozenset(filter(is_installed, BY_NAME)))
