"""A whole network in a worker: a library that was built elsewhere, its inputs in, its outputs or its times out.

Only a backend that has `load_network` can do that (`ansor.core.device.backend.Backend`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ..core.device.backend import load_backend
from ..core.tasks.measure_values import MeasureErrorNo


def run_network(job: dict[str, Any]) -> dict[str, Any]:
    """Run the library `file` on the inputs NAME.npy of the folder `inputs`; `repeat` times, each `number` runs.

    With `repeat` 0 it is run once, and its output is left in the folder as `output.npy`.  Gives `{"times": seconds}`.
    Raises MeasureError for a backend that has no networks, and what the network raises.
    """
    module = load_backend(job["backend"], job["kind"]).load_network(job["file"], int(job["device"]))
    folder = Path(job["inputs"])
    for path in sorted(folder.glob("*.npy")):
        module.set_input(path.stem, np.load(path, allow_pickle=False))
    if not job["repeat"]:
        module.run()
        np.save(folder / "output.npy", module.get_output(0).numpy(), allow_pickle=False)
        return {"error_no": int(MeasureErrorNo.NO_ERROR), "times": []}
    figures = module.time_evaluator("run", number=int(job["number"]), repeat=int(job["repeat"]))()
    return {"error_no": int(MeasureErrorNo.NO_ERROR), "times": [float(t) for t in figures.results]}
