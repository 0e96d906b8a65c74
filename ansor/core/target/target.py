"""What a program is made for: a kind (`c`, `cuda`, `vta`) and options, written as users of TVM write them.

Target("cuda -arch=sm_90").kind.name == "cuda"        Target("llvm -mcpu=core-avx2").kind.name == "c"
Target("cuda -precision=tf32").precision == "tf32"     Target("cuda").precision == "strict"
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import InitVar, dataclass
from functools import cached_property, lru_cache
from typing import NoReturn

from te_lite.errors import require
from te_lite.expr.spelling import did_you_mean

from ..errors import TaskError
from .registry import family_of, is_known, known_kinds

DESCRIBE = ("keys", "libs", "device", "model", "tag", "runtime", "executor", "interface-api", "link-params",
            "system-lib")  # fmt: skip
"""TVM's words for what a target is, which a program does not depend on here; `model` names a GPU or accelerator."""

HONOURED: dict[str, tuple[str, ...]] = {"c": ("march", "mcpu"), "cuda": ("arch",), "vta": ()}
"""What a program depends on; each needs a value.  A kind that is not here judges its options itself."""
NATIVE = "native"
"""The processor at hand, which is meant where none is named."""

JUDGED = ("precision",)
"""What `Target` itself judges, for every kind."""

DEVICE_LIMITS = ("max_num_threads", "thread_warp_size", "max_threads_per_block", "max_shared_memory_per_block",
                 "shared_memory_per_block", "registers_per_block", "l2_cache_size_bytes")  # fmt: skip
"""How TVM describes a GPU beside its architecture; here `model` or the device itself says these."""


def known_options(kind: str) -> tuple[str, ...] | None:
    """The options that a target of a kind may have; None where its backend judges them."""
    if kind not in HONOURED:
        return None
    return (*HONOURED[kind], *JUDGED, *DESCRIBE, *(DEVICE_LIMITS if kind == "cuda" else ()))


def check_option(text: str, kind: str, word: str) -> None:
    """Raises TaskError, about the target `text`, for a word that is no option, or none of the kind's."""
    subject = f"target {text!r}"
    ok = len(word) > 1 and word.startswith("-")
    require(ok, TaskError, subject, "options are -name or -name=value", got=word)
    known, (name, _, value) = known_options(kind), word.lstrip("-").partition("=")
    if known is None:
        return
    law = f"unknown option, {did_you_mean(name, known)}options of {kind} are {', '.join('-' + o for o in known)}"
    require(name in known, TaskError, subject, law, option=word)
    ok = name not in HONOURED[kind] or re.fullmatch(r"[A-Za-z0-9_.+-]+", value) is not None
    require(ok, TaskError, subject, f"-{name} needs a value of letters, digits and . _ + -", option=word)


def decisive(kind: str, attrs: Mapping[str, str]) -> dict[str, str]:
    """Those of a target's options that its programs depend on; the processor of target `c` by one name, `march`.

    Of a kind that judges its options itself, all that do not only describe.
    """
    if kind == "c":
        processor = next((attrs[name] for name in HONOURED[kind] if attrs.get(name)), NATIVE)
        return {} if processor == NATIVE else {"march": processor}
    free = [name for name in attrs if name not in (*DESCRIBE, *JUDGED)]
    return {name: attrs[name] for name in HONOURED.get(kind, free) if name in attrs}


def known_words(kind: str, words: list[str]) -> list[str]:
    """The words that are options of a kind."""
    return [word for word in words if _is_known(kind, word)]


def _is_known(kind: str, word: str) -> bool:
    try:
        check_option(word, kind, word)
    except TaskError:
        return False
    return True


ALIASES = {"cpu": "c", "llvm": "c"}
STRICT, TF32, FP32X3 = "strict", "tf32", "fp32x3"
PRECISIONS = (STRICT, FP32X3, TF32)
"""How products of floats are computed: as the computation says, or on tensor cores, with both factors in two TF32 parts
(`ansor_ext/tensor_core/mma_meaning.py`), or cut to TF32."""
ELEMENTS = {FP32X3: "tf32x3", TF32: "tf32"}
"""What tensor cores read floats as."""
BIG = 2.0**66
"""The largest big part of a float in two parts: times a small part, 2^-11 of another, it is finite, and so are sums of
32."""
HALVES = {"fp16": "float16", "bf16": "bfloat16"}
"""Precisions of networks whose products are of 16 bits, and the dtype in their workloads."""
OF_THE_DEVICE = ("arch", "model")
"""Options that say of the device what it is anyway: where one is not named, it may be any."""


@dataclass(frozen=True, slots=True)
class TargetKind:
    """A family of targets; `name` chooses the sketch rules and the backend."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Target:
    """`text` is a kind (or the alias `llvm` or `cpu` of kind `c`) followed by options `-name` or `-name=value`.

    `host`, for TVM's `Target("cuda", host="llvm")`, must be a target of this machine's processor, which is the host of
    all.  Raises TaskError for an unknown kind, a word that is no option or none of the kind's, a precision that it
    lacks, and another host.
    """

    text: str
    host: InitVar[Target | str | None] = None

    def __post_init__(self, host: Target | str | None) -> None:
        law = "the host of every target is the processor of this machine, 'c'"
        require(host is None or Target.of(host).kind.name == "c", TaskError, "target", law, host=str(host))
        require(isinstance(self.text, str), TaskError, "target", "is written as a text", got=self.text)
        words = self.text.split()
        name = words[0] if words else ""
        if name not in ALIASES and not is_known(name):
            known = (*known_kinds(), *ALIASES)
            hint = did_you_mean(name, known)
            raise TaskError(f"target {self.text!r}: unknown, {hint}known targets are {', '.join(known)}")
        for word in words[1:]:
            check_option(self.text, ALIASES.get(name, name), word)
        subject, law = f"target {self.text!r}", f"the precision is one of {', '.join(PRECISIONS)}"
        require(self.precision in PRECISIONS, TaskError, subject, law, got=self.precision)
        law = "only GPUs have tensor cores, other targets are strict"
        require(self.precision == STRICT or self.is_gpu, TaskError, subject, law, got=self.precision)

    def __enter__(self) -> NoReturn:
        law = "there is no current target; give it to what needs it, as in SearchTask(func, args, target=target)"
        raise TaskError(f"target {self.text!r}: {law}")

    def __exit__(self, *raised: object) -> None:
        """Never called: `__enter__` refuses."""

    def with_precision(self, precision: str) -> Target:
        """The same target with this precision.  Raises TaskError for one that it lacks."""
        known = precision in PRECISIONS
        law = f"the precision is one of {', '.join(PRECISIONS)}"
        require(known, TaskError, f"target {self.text!r}", law, got=precision)
        words = [word for word in self.text.split() if not word.lstrip("-").startswith("precision=")]
        return Target(" ".join(words if precision == STRICT else [*words, f"-precision={precision}"]))

    @staticmethod
    def of(target: Target | str) -> Target:
        """`target` itself, or the target that a text names."""
        return target if isinstance(target, Target) else Target(target)

    @staticmethod
    @lru_cache(maxsize=256)
    def recorded(text: str) -> Target:
        """The target of a record, which may have been written elsewhere: without the options that are not known here.

        Raises TaskError for an unknown kind.
        """
        name, *words = text.split() or [""]
        return Target(" ".join([name, *known_words(ALIASES.get(name, name), words)]))

    @cached_property
    def kind(self) -> TargetKind:
        name = self.text.split()[0]
        return TargetKind(ALIASES.get(name, name))

    @cached_property
    def attrs(self) -> dict[str, str]:
        """The options without their dashes; an option without a value maps to the empty text."""
        pairs = [word.lstrip("-").partition("=") for word in self.text.split()[1:]]
        return {name: value for name, _, value in pairs}

    @property
    def precision(self) -> str:
        """The option `-precision`: one of PRECISIONS, `strict` when it is not given."""
        return self.attrs.get("precision", STRICT)

    @property
    def model(self) -> str:
        """The option `-model` of a GPU, in capitals: empty when it is not given, or `unknown`, as TVM has it."""
        given = self.attrs.get("model", "").upper()
        return "" if given == "UNKNOWN" else given

    @property
    def results(self) -> str:
        """What tells results of targets apart: the kind, and a precision that is not strict (`cuda tf32`)."""
        return self.kind.name if self.precision == STRICT else f"{self.kind.name} {self.precision}"

    @cached_property
    def _decisive(self) -> dict[str, str]:
        """The options that figures depend on, beside the precision."""
        model = {"model": self.model} if self.model else {}
        return decisive(self.kind.name, self.attrs) | model

    @cached_property
    def key(self) -> str:
        """What tells figures of targets apart, as the text of a target: that of `llvm -keys=cpu` is `c`."""
        precision = [] if self.precision == STRICT else [f"-precision={self.precision}"]
        return " ".join([self.kind.name, *precision, *[f"-{k}={v}" for k, v in sorted(self._decisive.items())]])

    def takes(self, other: Target) -> bool:
        """Whether what was measured for another target counts for this one: kind, precision and processor are the same.

        `c` compiles for the processor at hand, which is another thing than `c -march=haswell`.  A GPU or a model that
        only one of the two names may be the same.
        """
        mine, theirs = self._decisive, other._decisive
        loose = [name for name in OF_THE_DEVICE if name not in mine or name not in theirs]
        same = all(mine.get(name) == theirs.get(name) for name in {*mine, *theirs}.difference(loose))
        return same and self.results == other.results

    @property
    def device_name(self) -> str:
        """The option `-device`, or the empty text."""
        return self.attrs.get("device", "")

    @property
    def family(self) -> str:
        """The kind whose programs are searched for it: "c", "cuda", or none (`ansor.core.target.registry.Entry`)."""
        return family_of(self.kind.name)

    @property
    def is_gpu(self) -> bool:
        return self.family == "cuda"

    def __str__(self) -> str:
        return self.text
