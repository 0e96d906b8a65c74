"""The knob that says how loops run: unrolled, vectorised, bound to threads; or where a stage is computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

from te_lite.errors import require

from .axis import VirtualAxis, know, only
from .errors import InstantiationError, TemplateError

TRIES = {"try_unroll": ("none", "unroll"), "try_vec": ("none", "vec"), "try_unroll_vec": ("none", "unroll", "vec")}
POLICIES = ("none", "unroll", "vec", *TRIES, "bind_gpu", "bind_gpu_virtual", "locate_cache")
BLOCKS = ("blockIdx.z", "blockIdx.y", "blockIdx.x")
THREADS = ("threadIdx.z", "threadIdx.y", "threadIdx.x")


@dataclass(frozen=True)
class AnnotateEntity:
    """One annotation per loop; numbers of loops for the policy `locate_cache`."""

    anns: tuple[str | int, ...]

    def apply(
        self,
        sch: Any,
        op: Any,
        axes: Sequence[Any],
        axis_lens: Sequence[int] | None = None,
        max_unroll: int | None = None,
        vec_size: Sequence[int] | None = None,
        source: Sequence[Sequence[Any]] | None = None,
    ) -> list[Any]:
        """Annotate the loops `axes` of `op`; the loops that are left when some were fused.

        `source[k]` are the stages that go to the k-th position of `locate_cache`.  Raises InstantiationError when a
        loop of `axis_lens` is unrolled beyond `max_unroll`, or a vector has none of the lengths `vec_size`.
        """
        loops = list(axes)
        if source is not None:
            for stages, where in zip(source, self.anns, strict=True):
                for stage in stages:
                    sch[stage].compute_at(sch[op], loops[int(where)])
            return loops
        law = "as many loops as were defined are needed"
        require(len(loops) == len(self.anns), TemplateError, "annotate", law, loops=len(loops), defined=len(self.anns))
        fused: set[int] = set()
        for k, ann in enumerate(self.anns):
            length = None if axis_lens is None else axis_lens[k]
            match ann:
                case "none":
                    continue
                case "unroll":
                    ok = max_unroll is None or length is None or length <= max_unroll
                    law = f"a loop of more than {max_unroll} iterations is unrolled"
                    require(ok, InstantiationError, "annotate", law, length=length)
                    sch[op].unroll(loops[k])
                case "vec":
                    ok = vec_size is None or length is None or length in vec_size
                    require(ok, InstantiationError, "annotate", f"a vector needs a length of {vec_size}", length=length)
                    sch[op].vectorize(loops[k])
                case "fuse":
                    loops[k + 1] = sch[op].fuse(loops[k], loops[k + 1])
                    fused.add(k)
                case _:
                    sch[op].bind(loops[k], str(ann))
        return [loop for k, loop in enumerate(loops) if k not in fused]

    def to_json(self) -> list[Any]:
        return ["an", list(self.anns)]

    def __repr__(self) -> str:
        return str(list(self.anns))


@dataclass(frozen=True)
class AnnotateSpace:
    """All annotations of some loops."""

    axes: tuple[VirtualAxis, ...]
    entities: tuple[AnnotateEntity, ...]


def annotate_space(name: str, axes: tuple[VirtualAxis, ...], policy: str, options: dict[str, Any]) -> AnnotateSpace:
    """The choices of `define_annotate`.

    none, unroll, vec (the last loop)           one choice
    try_unroll, try_vec, try_unroll_vec         each loop with and without; at most one is a vector
    bind_gpu, bind_gpu_virtual                  the surplus outer loops fused, the others bound to blocks, (virtual
                                                threads,) threads: in three dimensions where there are loops for it
    locate_cache                                every combination of `num_anchor` loops to compute stages at

    Raises TemplateError for options that do not fit.
    """
    know(policy, POLICIES, name)
    only(options, ("num_anchor",) if policy == "locate_cache" else (), name)
    n = len(axes)
    choices: list[tuple[str | int, ...]]
    match policy:
        case "none" | "unroll":
            choices = [(policy,) * n]
        case "vec":
            choices = [(*("none",) * (n - 1), "vec")]
        case "bind_gpu" | "bind_gpu_virtual":
            choices = [_binding(name, n, ("vthread",) * 3 if policy == "bind_gpu_virtual" else ())]
        case "locate_cache":
            choices = list(combinations(range(n), int(options.get("num_anchor", 1))))
            require(choices, TemplateError, f"knob {name}", "there are fewer loops than anchors", loops=n, **options)
        case _:
            choices = [c for c in product(TRIES[policy], repeat=n) if c.count("vec") <= 1]
    return AnnotateSpace(axes, tuple([AnnotateEntity(c) for c in choices]))


def _binding(name: str, n: int, virtual: tuple[str, ...]) -> tuple[str | int, ...]:
    kinds = 3 if virtual else 2
    dimensions = min(3, n // kinds)
    require(dimensions > 0, TemplateError, f"knob {name}", f"at least {kinds} loops are needed to bind", loops=n)
    bound = (*BLOCKS[-dimensions:], *virtual[:dimensions], *THREADS[-dimensions:])
    return (*("fuse",) * (n - len(bound)), *bound)
