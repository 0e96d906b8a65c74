"""
Tuning two layers with one budget
=================================

A network is tuned layer by layer, and layers differ in how much there is to gain.  The task scheduler divides the
trials: each round goes to the layer that promises to make the whole network faster.  Here the network has two kinds
of layers, and the first one occurs three times.

The target is `c` unless another one is named on the command line; set ANSOR_TRIALS for more than a demonstration.
"""

import os
import sys

import numpy as np

import ansor
import te_lite as te
from relay_lite.op.numpy_windows import convolve as conv2d_nchw_python
from te_lite import topi


@ansor.register_workload
def conv_relu(N, H, W, CO, CI, K, stride):
    data = te.placeholder((N, CI, H, W), name="data")
    kernel = te.placeholder((CO, CI, K, K), name="kernel")
    conv = topi.nn.conv2d_nchw(data, kernel, stride, K // 2, dilation=1)
    return [data, kernel, topi.nn.relu(conv)]


@ansor.register_workload
def fully_connected(N, OUT, IN):
    data = te.placeholder((N, IN), name="data")
    weight = te.placeholder((OUT, IN), name="weight")
    bias = te.placeholder((OUT,), name="bias")
    return [data, weight, bias, topi.nn.dense(data, weight, bias)]


target = sys.argv[1] if len(sys.argv) > 1 else "c"
trials = int(os.environ.get("ANSOR_TRIALS", "64"))
log_file = "two_layers.json"
tasks = [
    ansor.SearchTask(conv_relu, (1, 14, 14, 48, 32, 3, 1), target=target, desc="convolution 3x3, 14x14, 32 to 48"),
    ansor.SearchTask(fully_connected, (1, 1000, 512), target=target, desc="fully connected, 512 to 1000"),
]
occurrences = [3, 1]


def tune(scheduler):
    measure_ctx = ansor.LocalRPCMeasureContext(min_repeat_ms=20)
    scheduler.tune(
        ansor.TuningOptions(
            num_measure_trials=trials,
            num_measures_per_round=8,
            runner=measure_ctx.runner,
            measure_callbacks=[ansor.RecordToFile(log_file)],
        )
    )
    del measure_ctx


# The table shows, before each round, where the time goes; the curve goes to a file
callbacks = [ansor.PrintTableInfo(), ansor.LogEstimatedLatency("two_layers.tsv")]
tune(ansor.TaskScheduler(tasks, occurrences, callbacks=callbacks, seed=1))

# Later, go on where the log ends: nothing is measured twice.  This time the slower of the two layers matters
print("Go on:")
scheduler = ansor.TaskScheduler(tasks, objective_func=max, load_log_file=log_file, callbacks=callbacks, seed=2)
tune(scheduler)
print("Trials per layer:", scheduler.task_trials)

# Check the best programs against NumPy
rng = np.random.default_rng(0)
for task in tasks:
    data, weight, *bias = [rng.uniform(-1, 1, t.shape).astype("float32") for t in task.compute_dag.inputs]
    out = np.full(task.compute_dag.outputs[0].shape, np.nan, "float32")
    task.build_best(log_file)(data, weight, *bias, out)
    expected = data @ weight.T + bias[0] if bias else np.maximum(conv2d_nchw_python(data, weight, 1, 1), 0)
    np.testing.assert_allclose(out, expected, rtol=1e-3, atol=1e-4)
print("Both layers compute what NumPy does")
