"""PyTorch's own table of operators and samples of inputs: each compiled by the backend `ansor`, beside eager mode.

    python -m tests.torch.op_database --seconds 300 --jobs 16 [--device cuda] [--edges] [--json FILE]

It needs `expecttest`, as the table does.  Floats of 32 and 64 bits and integers are held to eager mode; halves to
float64, of which they may be off thrice as far as eager mode and two units.  Random operators are left out, and so are
those of a few that PyTorch itself may give in several ways.  Exits with 1 when something differs.
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from relay_lite.pytorch.dynamo import ansor

SAMPLES = {"float32": 6, "int64": 3, "float16": 2, "bfloat16": 2, "bool": 2, "uint8": 2, "int32": 2, "float64": 2}
TOLERANCES = {"float32": 1e-4, "float64": 1e-7}
EPSILONS = {"float16": 2.0**-10, "bfloat16": 2.0**-7}
SAMPLE_SECONDS = 60
RANDOM = (
    "rand", "dropout", "empty", "normal", "bernoulli", "multinomial", "uniform", "exponential", "cauchy", "geometric",
)  # fmt: skip
SEVERAL = (
    "svd", "eig", "lstsq", "pinverse", "ldl", "lu", "qr", "topk", "sort", "sparse", "jiterator", "fft", "stft",
    "complex", "polar", "view_as_real",
)  # fmt: skip
"""What has several right results (bases, the order of ties), and what has complex numbers."""
ROUNDED = "bilinear", "bicubic"
"""Where eager mode rounds the weights of `uint8` (docs/in_pytorch.md)."""


class _TooLong(Exception):
    """A sample that took more than `SAMPLE_SECONDS`."""


def _stop(*_: Any) -> None:
    raise _TooLong


def operators() -> list[Any]:
    """Those that are tried."""
    from torch.testing._internal.common_methods_invocations import op_db

    return [op for op in op_db if not any(word in f"{op.name}.{op.variant_test_name}" for word in RANDOM + SEVERAL)]


def _samples(op: Any, dtype: Any, device: str, edges: bool) -> list[Any]:
    every = list(op.sample_inputs(device, dtype, requires_grad=False))
    if edges:
        tensors = [[x for x in tree_leaves((s.input, s.args, s.kwargs)) if isinstance(x, torch.Tensor)] for s in every]
        every = [
            s for s, given in zip(every, tensors, strict=True) if any(x.ndim == 0 or x.numel() == 0 for x in given)
        ]
    count = SAMPLES[str(dtype).removeprefix("torch.")]
    return every[:: max(1, len(every) // count)]


def _is_edge(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and (x.ndim == 0 or x.numel() == 0)


def _copied(given: Any) -> Any:
    return tree_map(lambda x: x.clone() if isinstance(x, torch.Tensor) else x, given)


def _differ(op: Any, sample: Any, kind: str) -> str | None:
    """What is wrong with a sample; None for nothing, and for what eager mode refuses."""

    def function(x: Any, args: Any, kwargs: Any) -> Any:
        return op.op(x, *args, **kwargs)

    given = sample.input, sample.args, sample.kwargs
    one, two = _copied(given), _copied(given)
    try:
        want = function(*one)
    except (RuntimeError, NotImplementedError, ValueError, TypeError, IndexError):
        return None
    torch._dynamo.reset()
    got = torch.compile(function, backend=ansor, dynamic=False)(*two)
    pairs = zip(tree_leaves((got, two)), tree_leaves((want, one)), strict=True)
    tensors = [(g, w) for g, w in pairs if isinstance(w, torch.Tensor)]
    tolerance = 1e30 if kind in EPSILONS else TOLERANCES.get(kind, 1e-5)
    for g, w in tensors:
        torch.testing.assert_close(g, w, rtol=tolerance, atol=tolerance, equal_nan=True, check_stride=False)
    return _off(function, given, tensors, kind) if kind in EPSILONS else None


def _off(function: Callable[..., Any], given: Any, tensors: Any, kind: str) -> str | None:
    """How far halves are off what is computed in float64."""
    wide = tree_map(lambda x: x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x, given)
    try:
        true = [t for t in tree_leaves(function(*wide)) if isinstance(t, torch.Tensor)]
    except (RuntimeError, NotImplementedError, ValueError, TypeError):
        return None
    for (g, w), t in zip(tensors, true, strict=False):
        known = torch.isfinite(t) & torch.isfinite(w) if t.is_floating_point() and t.shape == w.shape else None
        if known is not None and known.any():
            ours, theirs = ((x.double() - t)[known].abs().max().item() for x in (g, w))
            most = t[known].abs().max().item()
            if ours > 3 * theirs + 2 * EPSILONS[kind] * most:
                return f"off by {ours}, eager mode by {theirs}, of numbers up to {most}"
    return None


def tried(job: tuple[int, str, str, bool]) -> list[dict[str, Any]]:
    """The samples of an operator and a dtype, each with what is wrong with it."""
    index, kind, device, edges = job
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    signal.signal(signal.SIGALRM, _stop)
    op, dtype, found = operators()[index], getattr(torch, kind), list[dict[str, Any]]()
    rounded = kind == "uint8" and any(word in f"{op.name}.{op.variant_test_name}" for word in ROUNDED)
    if rounded or dtype not in (op.dtypesIfCUDA if device == "cuda" else op.dtypes):
        return found
    with torch.no_grad(), torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        for k, sample in enumerate(_samples(op, dtype, device, edges)):
            signal.alarm(SAMPLE_SECONDS)
            try:
                why = _differ(op, sample, kind)
            except Exception as error:
                why = f"{type(error).__name__}: {error}"
            finally:
                signal.alarm(0)
            shown = tree_map(
                lambda x: tuple(x.shape) if isinstance(x, torch.Tensor) else x, (sample.args, sample.kwargs)
            )
            name = f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name
            found.append({"operator": name, "dtype": kind, "sample": k, "given": str(shown)[:300], "why": why})
    return found


def _rows(jobs: list[Any], processes: int, seconds: float) -> Iterator[dict[str, Any]]:
    """The samples of as many jobs as are done in time."""
    begun = time.monotonic()
    with multiprocessing.get_context("spawn").Pool(processes, maxtasksperchild=60) as pool:
        made = pool.imap_unordered(tried, jobs)
        while (left := seconds - (time.monotonic() - begun)) > 0:
            try:
                yield from made.next(timeout=left)
            except (StopIteration, multiprocessing.TimeoutError):
                break
        pool.terminate()


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0, help="of the order in which operators come")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--edges", action="store_true", help="samples with scalars or without elements")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args(argv)
    jobs = [(k, kind, args.device, args.edges) for k in range(len(operators())) for kind in SAMPLES]
    random.Random(args.seed).shuffle(jobs)
    rows = list(_rows(jobs, args.jobs, args.seconds))
    wrong = [row for row in rows if row["why"]]
    for row in wrong:
        print(f"{row['operator']} {row['dtype']} {row['given']}: {row['why']}", flush=True)
    print(f"{len(rows)} samples of {len({row['operator'] for row in rows})} operators, {len(wrong)} differ")
    if args.json:
        args.json.write_text(json.dumps({"samples": len(rows), "wrong": wrong}, indent=1))
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
