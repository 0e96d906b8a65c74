"""The options of targets, by kind: those that are honoured, and those that only describe, as TVM writes them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from te_lite.errors import require
from te_lite.expr.spelling import did_you_mean

from ..errors import TaskError

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
