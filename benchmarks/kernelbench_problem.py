"""One problem of KernelBench in a process of its own: PyTorch's ways and ours, each checked and then timed in turns.

Each finding is a line of JSON in a file as soon as it is known, so a process that is ended early has told what it
found.  A model runs as KernelBench runs it: without gradients and in training mode (`--eval`: in evaluation
mode).  Ours is compared with eager, strict, on inputs of `SEEDS` seeds: outputs, and buffers that the model writes.
"""

from __future__ import annotations

import fcntl
import gc
import importlib
import json
import logging
import math
import os
import re
import signal
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.kernelbench_sizes import AS_WRITTEN, changed, load

WAYS = ("eager", "tf32", "compile", "zero", "tuned", "fp32x3")
OURS = ("zero", "tuned", "fp32x3")
SEEDS = 5
TOLERANCE = 1e-4
"""What KernelBench asks of float32, relative and absolute."""
ROUNDS, SLICE = 5, 0.02
OUR_KERNELS = r"_kernel\d+$"
"""The names of our kernels end so (`codegen_cuda/emission/emit.py`)."""
MOST_SAID = 300
LONGEST = 8
"""Kernels of a call whose times are kept."""
PIECE = 1 << 26
"""Elements that are compared at a time."""
SETTLED = 0.3
"""Seconds after which a GPU has done what stopped processes had asked of it."""
COPIED, SIDE = 1 << 30, 4096
"""Bytes of the copy and side of the product that say what the device can do."""
Run = Callable[..., Any]


PRELOADED = ["torch", "torch._dynamo", "torch.utils.flop_counter", "relay_lite.pytorch", __name__]
"""What is imported once, for all processes."""


@dataclass(frozen=True)
class Asked:
    """A problem's `file`, the `ways`, `seconds` of tuning, and whether it is in evaluation mode, or only checked.

    `sizes` names what becomes of its sizes (`kernelbench_sizes.CHANGES`).  Logs of what is measured stay in the folder
    `logs`, where it names one.
    """

    file: str
    ways: tuple[str, ...]
    seconds: float
    evaluate: bool
    sizes: str
    untimed: bool
    logs: str
    beside: str
    """A folder with the numbers of the processes that share the GPU."""


Tell = Callable[..., None]


class Problem:
    """The module of a problem: its model, in training mode, and inputs by seed, all made on the GPU."""

    def __init__(self, torch: Any, file: Path, evaluate: bool, sizes: Mapping[str, Any]) -> None:
        self.torch, self.evaluate = torch, evaluate
        self.module = load(file, sizes)

    def model(self) -> Any:
        self.torch.manual_seed(42)
        with self.torch.device("cuda"):
            made = self.module.Model(*self.module.get_init_inputs())
        there = all(x.is_cuda for x in (*made.parameters(), *made.buffers()))
        made = made if there else made.to("cuda")  # which fails for fake tensors, there or not
        return made.eval() if self.evaluate else made

    def inputs(self, seed: int) -> list[Any]:
        self.torch.manual_seed(seed)
        with self.torch.device("cuda"):
            drawn = self.module.get_inputs()
        return [x.to("cuda") if isinstance(x, self.torch.Tensor) else x for x in drawn]


def other_sizes(torch: Any, asked: Asked) -> Mapping[str, Any]:
    """The sizes of a problem after the change that is asked for.  Raises what the model raises as it is written."""

    fake = importlib.import_module("torch._subclasses.fake_tensor")
    mode: Callable[[], AbstractContextManager[Any]] = fake.FakeTensorMode  # nothing is computed

    def run(sizes: Mapping[str, Any]) -> None:
        problem = Problem(torch, Path(asked.file), asked.evaluate, sizes)
        problem.model()(*problem.inputs(0))

    def runs(sizes: Mapping[str, Any]) -> bool:
        try:
            with mode():
                run(sizes)
        except Exception:  # whatever a model raises, these are no sizes for it
            return False
        return True

    torch.rand(1, device="cuda")  # what a device is asked for first fails there
    try:
        with mode():
            run({})
    except fake.DataDependentOutputException:  # a model that reads values is run as it is
        mode = nullcontext
    return changed(Path(asked.file), asked.sizes, runs)


def largest_error(torch: Any, got: Any, want: Any) -> float:
    """The largest `|got - want| / (1 + |want|)`: not above TOLERANCE where KernelBench's comparison passes."""
    if isinstance(want, list | tuple):
        assert len(got) == len(want), "another number of outputs"
        return max((largest_error(torch, g, w) for g, w in zip(got, want, strict=True)), default=0.0)
    if not isinstance(want, torch.Tensor):
        return 0.0 if got == want else math.inf
    assert (got.shape, got.dtype) == (want.shape, want.dtype), f"{got.shape} {got.dtype}, not {want.shape} {want.dtype}"
    worst = 0.0
    for g, w in zip(got.reshape(-1).split(PIECE), want.reshape(-1).split(PIECE), strict=True):
        g, w = g.double(), w.double()
        same = (g == w) | (g.isnan() & w.isnan())
        error = torch.where(same, 0.0, (g - w).abs() / (1 + w.abs()))
        worst = max(worst, float(error.nan_to_num(math.inf, math.inf).max()))
    return worst


def written(model: Any) -> list[Any]:
    """What a model may write to: its buffers, floats for the comparison."""
    return [b.float() for b in model.buffers()]


def made(torch: Any, way: str, model: Any, seconds: float, log: Path) -> Any:
    """What runs a model in a way; nothing is compiled before the first call.  What is measured goes to `log`."""
    for backend in (torch.backends.cuda.matmul, torch.backends.cudnn):
        backend.allow_tf32 = False
    if way == "eager":
        return model
    torch._dynamo.reset()
    torch._dynamo.config.allow_rnn = True
    if way == "compile":
        return torch.compile(without_steps(torch, model))
    if way == "tf32":
        return lambda *given: with_tf32(torch, model, given)
    options: dict[str, Any] = {"keep_faster": False}
    options |= {"trials": 0} if way == "zero" else {"seconds": seconds, "log": log}
    options |= {"precision": way} if way == "fp32x3" else {}
    return torch.compile(model, backend=importlib.import_module("relay_lite.pytorch").ansor, options=options)


def without_steps(torch: Any, model: Any) -> Any:
    """The model with recurrent layers that stay PyTorch's: torch.compile would take every step of them apart.

    That is what it does without `allow_rnn`, which holds for the whole process, calls of ours included.
    """
    for layer in model.modules():
        if isinstance(layer, torch.nn.RNNBase):
            layer.forward = torch.compiler.disable(layer.forward)
    return model


def with_tf32(torch: Any, model: Any, given: Sequence[Any]) -> Any:
    """PyTorch's defaults: convolutions in TF32, products not."""
    torch.backends.cudnn.allow_tf32 = True
    try:
        return model(*given)
    finally:
        torch.backends.cudnn.allow_tf32 = False


def first_call(torch: Any, run: Run, inputs: Sequence[Any]) -> float:
    """The seconds of a call from nothing."""
    start = time.perf_counter()
    run(*inputs)
    torch.cuda.synchronize()
    return time.perf_counter() - start


def memory(torch: Any, run: Run, inputs: Sequence[Any]) -> dict[str, int]:
    """The most bytes that a call takes of the device beside what is there between calls, and those there after it.

    All that a process holds counts, PyTorch's or not; kernels and contexts are taken before the first call.
    """

    def used() -> int:
        free, total = torch.cuda.mem_get_info()
        return int(total - free - torch.cuda.memory_reserved() + torch.cuda.memory_allocated())

    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    out = run(*inputs)
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated() - before
    del out
    return {"peak_bytes": int(peak), "between_bytes": used()}


def in_turns(torch: Any, runs: Mapping[str, Run], inputs: Sequence[Any]) -> dict[str, float]:
    """The median milliseconds of a call by way: calls follow each other as a user's do, ways take turns."""
    begin, end = [torch.cuda.Event(enable_timing=True) for _ in range(2)]

    def figure(run: Run, count: int) -> float:
        begin.record()
        for _ in range(count):
            run(*inputs)
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) / count

    counts = {}
    for way, run in runs.items():
        figure(run, 2)
        counts[way] = min(200, max(1, round(1e3 * SLICE / figure(run, 1))))
    figures: dict[str, list[float]] = {way: [] for way in runs}
    for _ in range(ROUNDS):
        for way, run in runs.items():
            figures[way].append(figure(run, counts[way]))
    return {way: statistics.median(found) for way, found in figures.items()}


@contextmanager
def alone(beside: Path) -> Iterator[None]:
    """The other processes of the GPU are stopped while this one takes times; new ones wait."""
    with _turn(beside):
        others = [int(f.name) for f in beside.iterdir() if f.name.isdigit() and f.name != str(os.getpid())]
        try:
            tell_all(others, signal.SIGSTOP)
            time.sleep(SETTLED)  # what they have queued runs out
            yield
        finally:
            tell_all(others, signal.SIGCONT)


@contextmanager
def _turn(beside: Path) -> Iterator[None]:
    with open(beside / "turn", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def tell_all(processes: Sequence[int], what: signal.Signals) -> None:
    """Send a signal to groups of processes, those that are there still."""
    for number in processes:
        with suppress(ProcessLookupError):
            os.killpg(number, what)


def ceilings(torch: Any) -> dict[str, float]:
    """Bytes a second of a copy (read and written), and operations a second of a product of floats."""
    source = torch.rand(COPIED // 4, device="cuda")
    target = torch.empty_like(source)
    a = torch.rand(SIDE, SIDE, device="cuda")
    took = in_turns(torch, {"copy": lambda: target.copy_(source), "product": lambda: a @ a}, [])
    return {"bytes_s": 2 * COPIED / took["copy"] * 1e3, "flops_s": 2 * SIDE**3 / took["product"] * 1e3}


def work(torch: Any, model: Any, inputs: Sequence[Any]) -> dict[str, int]:
    """The operations of products and convolutions, and the bytes of inputs, weights and outputs."""
    with importlib.import_module("torch.utils.flop_counter").FlopCounterMode(display=False) as counter:
        out = model(*inputs)
    held = [*inputs, *model.parameters(), *(out if isinstance(out, list | tuple) else [out])]
    nbytes = sum(t.numel() * t.element_size() for t in held if isinstance(t, torch.Tensor))
    return {"flops": int(counter.get_total_flops()), "bytes": int(nbytes)}


def right(torch: Any, problem: Problem, run: Run, model: Any) -> float:
    """The largest error of a way beside eager, over all seeds; both begin with equal models.

    Calls may have changed buffers alone.  No weight is written to, which would make another program of it.
    """
    reference, worst = problem.model(), 0.0
    for ours, theirs in zip(model.buffers(), reference.buffers(), strict=True):
        if not torch.equal(ours, theirs):
            ours.copy_(theirs)
    for seed in range(SEEDS):
        inputs = problem.inputs(seed)
        torch.manual_seed(seed)
        want = reference(*inputs)
        torch.manual_seed(seed)
        got = run(*inputs)
        worst = max(worst, largest_error(torch, got, want))
        worst = max(worst, largest_error(torch, written(model), written(reference)))
        del want, got, inputs
    return worst


def beside_float64(torch: Any, problem: Problem, run: Run, model: Any) -> dict[str, float]:
    """The largest errors of a way and of eager beside the model in float64, on inputs of all seeds.

    They say whether floats are too short for the computation, such as norms of few values that are nearly equal.
    """
    errors = {"ours": 0.0, "eager": 0.0}
    for seed in range(SEEDS):
        inputs = problem.inputs(seed)
        reference = problem.model()
        for ours, theirs in zip(model.buffers(), reference.buffers(), strict=True):
            ours.copy_(theirs)
        torch.manual_seed(seed)
        got = {"ours": run(*inputs)}
        torch.manual_seed(seed)
        got["eager"] = reference(*inputs)
        torch.manual_seed(seed)
        want = problem.model().double()(*[x.double() if _is_float(torch, x) else x for x in inputs])
        for name, values in got.items():
            errors[name] = max(errors[name], largest_error(torch, as_float64(torch, values), want))
    return errors


def _is_float(torch: Any, x: Any) -> bool:
    return isinstance(x, torch.Tensor) and bool(x.is_floating_point())


def as_float64(torch: Any, value: Any) -> Any:
    """Tensors of floats, in lists and tuples too, in float64."""
    if isinstance(value, list | tuple):
        return [as_float64(torch, v) for v in value]
    return value.double() if _is_float(torch, value) else value


class Said(logging.Handler):
    """What our packages log, a message once."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.messages: list[str] = []
        for name in ("ansor.torch", "relay_lite"):
            logging.getLogger(name).addHandler(self)
            logging.getLogger(name).setLevel(logging.INFO)

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage()[:MOST_SAID])

    def taken(self) -> list[str]:
        """The messages since the last time."""
        found, self.messages = list(dict.fromkeys(self.messages)), []
        return found


def spent(torch: Any, run: Run, inputs: Sequence[Any]) -> dict[str, Any]:
    """The `share` of a call's time on the device that kernels of ours take, and microseconds of the longest kernels."""
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        run(*inputs)
        torch.cuda.synchronize()
    took = {e.key: e.self_device_time_total for e in profile.key_averages() if e.self_device_time_total > 0}
    ours = sum(time for name, time in took.items() if re.search(OUR_KERNELS, name))
    longest = sorted(took, key=took.__getitem__, reverse=True)[:LONGEST]
    return {
        "share": float(ours / max(sum(took.values()), 1e-9)),
        "kernels": {name[:MOST_SAID]: round(took[name], 1) for name in longest},
    }


def solve(torch: Any, asked: Asked, tell: Tell, folder: Path) -> None:
    """Tell all of a problem; `folder` is for logs."""
    said = Said()
    folder.mkdir(parents=True, exist_ok=True)
    sizes: Mapping[str, Any] = {}
    if asked.sizes != AS_WRITTEN:
        sizes = other_sizes(torch, asked)
        tell(sizes=sizes)
        if not sizes:
            return
    problem = Problem(torch, Path(asked.file), asked.evaluate, sizes)
    runs: dict[str, Run] = {}
    inputs = problem.inputs(0)
    tell(device=torch.cuda.get_device_name(), torch=torch.__version__, **work(torch, problem.model(), inputs))
    for way in asked.ways:
        model, log = problem.model(), folder / f"{Path(asked.file).parent.name}_{Path(asked.file).stem}_{way}.json"
        try:
            run = made(torch, way, model, asked.seconds, log)
            found: dict[str, Any] = {"first_s": first_call(torch, run, inputs)}
            found |= memory(torch, run, inputs)
            if way in OURS:
                found["trials"] = len(log.read_text().splitlines()) if log.exists() else 0
                found |= spent(torch, run, inputs)
                found["error"] = right(torch, problem, run, model)
                if found["error"] > TOLERANCE:
                    found["float64"] = beside_float64(torch, problem, run, model)
            runs[way] = run
        except Exception as error:  # whatever a model or a compiler raises is what is to be known of this way
            found = {"failed": f"{type(error).__name__}: {error}"[:500], "trace": traceback.format_exc()[-1500:]}
        tell(way=way, said=said.taken(), **found)
        gc.collect()
        torch.cuda.empty_cache()
    if not asked.untimed:
        with alone(Path(asked.beside)):
            tell(ms=in_turns(torch, runs, inputs), **ceilings(torch))


def work_on(asked: Asked, gpu: str, findings: str, said: str) -> None:
    """The process of a problem: on one GPU, what it finds in a file and what it says in another."""
    os.setsid()
    os.environ["CUDA_VISIBLE_DEVICES"] = gpu
    with _turn(Path(asked.beside)):
        (Path(asked.beside) / str(os.getpid())).touch()
    with open(said, "w") as words, open(findings, "w") as lines:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(words.fileno(), stream.fileno())
        torch = importlib.import_module("torch")

        def tell(**found: Any) -> None:
            print(json.dumps(found), file=lines, flush=True)

        torch.set_grad_enabled(False)
        solve(torch, asked, tell, Path(asked.logs or findings + "_logs"))
