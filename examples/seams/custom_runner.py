"""A builder and a runner of one's own: the search looks for the shortest C text instead of the fastest program.

A builder queues candidates and gives futures; a runner takes what was built and gives a result.  A candidate that fails
is a result, never an exception.  Nothing is compiled or run, so this needs neither a compiler nor a device.
"""

import tempfile
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import ansor
import codegen_c
import te_lite as te
from ansor.measure import BuildResult, MeasureErrorNo, MeasureInput, MeasureResult
from te_lite.errors import UnsafeError


class TextBuilder:
    """Writes the C text of a program into a file of its own."""

    n_parallel = 1

    def __init__(self) -> None:
        self.folder, self.threads = tempfile.TemporaryDirectory(), ThreadPoolExecutor(1)

    def submit(self, inp: MeasureInput) -> Future[BuildResult]:
        return self.threads.submit(self.build, inp)

    def build(self, inp: MeasureInput) -> BuildResult:
        start = time.monotonic()
        try:
            text = codegen_c.emit(te.lower(inp.state))
        except te.TeError as error:
            refused = isinstance(error, UnsafeError)  # by the verifier: it is not proven to stay in its buffers
            error_no = MeasureErrorNo.REFUSED if refused else MeasureErrorNo.INSTANTIATION_ERROR
            return BuildResult("", (), int(error_no), str(error), time.monotonic() - start)
        folder = tempfile.mkdtemp(dir=self.folder.name)
        Path(folder, "program.c").write_text(text)
        return BuildResult(folder, (), 0, "", time.monotonic() - start)

    def close(self) -> None:
        self.threads.shutdown(cancel_futures=True)
        self.threads = ThreadPoolExecutor(1)


class TextRunner:
    """The cost of a program is a nanosecond for each character of its text."""

    def run(self, inp: MeasureInput, built: BuildResult) -> MeasureResult:
        now = int(time.time())
        if built.error_no:
            return MeasureResult((1e10,), built.error_no, built.error_msg, built.time_cost, now)
        text = Path(built.filename, "program.c").read_text()
        return MeasureResult((len(text) * 1e-9,), 0, "", built.time_cost, now)

    def close(self) -> None: ...


if __name__ == "__main__":
    a, b = te.placeholder((64, 64), name="A"), te.placeholder((64, 64), name="B")
    k = te.reduce_axis((0, 64), name="k")
    c = te.compute((64, 64), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    task = ansor.SearchTask(compute_dag=te.ComputeDAG([a, b, c]), target="c")
    builder, runner = TextBuilder(), TextRunner()
    for trials in (1, 40):
        measurer = ansor.ProgramMeasurer(builder, runner, verbose=0)
        ansor.SketchPolicy(task, ansor.RandomModel(0), seed=0, verbose=0).search(trials, None, 20, measurer)
        print(f"the shortest of {trials}: {measurer.best_of(task).cost * 1e9:.0f} characters")
