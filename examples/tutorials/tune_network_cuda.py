"""
Auto-scheduling a Neural Network
================================

The code of TVM's tutorial page for NVIDIA GPUs, with its import lines and the source of the model changed.  The target
is `c` unless another one is named on the command line.  Set ANSOR_TRIALS for more than the 48 trials of a
demonstration; ANSOR_NETWORK and ANSOR_IMAGE choose another network, and pictures of another size than 224.
"""

import os
import sys

import numpy as np

import ansor as auto_scheduler
import relay_lite as relay
import relay_lite as tvm
import relay_lite.testing
from relay_lite import graph_executor

size = int(os.environ.get("ANSOR_IMAGE", "224"))


def get_network(name, batch_size, layout="NHWC", dtype="float32"):
    """Get the symbol definition and random weight of a network"""

    # auto-scheduler prefers NHWC layout
    if layout == "NHWC":
        image_shape = (size, size, 3)
    elif layout == "NCHW":
        image_shape = (3, size, size)
    else:
        raise ValueError("Invalid layout: " + layout)

    input_shape = (batch_size,) + image_shape
    output_shape = (batch_size, 1000)

    if name.startswith("resnet-"):
        n_layer = int(name.split("-")[1])
        mod, params = relay.testing.resnet.get_workload(
            num_layers=n_layer,
            batch_size=batch_size,
            layout=layout,
            dtype=dtype,
            image_shape=image_shape,
        )
    elif name.startswith("resnet3d-"):
        n_layer = int(name.split("-")[1])
        input_shape = (batch_size, 16) + image_shape if layout == "NHWC" else (batch_size, 3, 16) + image_shape[1:]
        mod, params = relay.testing.resnet_3d.get_workload(
            num_layers=n_layer,
            batch_size=batch_size,
            layout=layout.replace("H", "DH"),
            dtype=dtype,
            image_shape=input_shape[1:],
        )
    elif name == "mobilenet":
        mod, params = relay.testing.mobilenet.get_workload(
            batch_size=batch_size, layout=layout, dtype=dtype, image_shape=image_shape
        )
    elif name == "squeezenet_v1.1":
        assert layout == "NCHW", "squeezenet_v1.1 only supports NCHW layout"
        mod, params = relay.testing.squeezenet.get_workload(
            version="1.1",
            batch_size=batch_size,
            dtype=dtype,
            image_shape=image_shape,
        )
    elif name == "inception_v3":
        input_shape = (batch_size, 3, 299, 299) if layout == "NCHW" else (batch_size, 299, 299, 3)
        mod, params = relay.testing.inception_v3.get_workload(
            batch_size=batch_size, dtype=dtype, layout=layout, image_shape=input_shape[1:]
        )
    elif name.endswith(".onnx"):
        # an example for an ONNX model, whose input is called "data"
        input_shape = (batch_size, 3, size, size)
        mod, params = relay.frontend.from_onnx(name, shape={"data": input_shape}, dtype=dtype)
        mod = relay.transform.ConvertLayout({"nn.conv2d": [layout, "default"]})(mod)

    return mod, params, input_shape, output_shape


# Define the neural network and compilation target
network = os.environ.get("ANSOR_NETWORK", "resnet-18")
batch_size = 1
layout = "NHWC"
target = tvm.target.Target(sys.argv[1] if len(sys.argv) > 1 else "c")
dtype = "float32"
log_file = "%s-%s-B%d-%s.json" % (network, layout, batch_size, target.kind.name)  # noqa: UP031

# Extract tasks from the network
print("Extract tasks...")
mod, params, input_shape, output_shape = get_network(network, batch_size, layout, dtype=dtype)
tasks, task_weights = auto_scheduler.extract_tasks(mod["main"], params, target)

for idx, task in enumerate(tasks):
    print("========== Task %d  (workload key: %s) ==========" % (idx, task.workload_key))  # noqa: UP031
    print(task.compute_dag)


def run_tuning(num_measure_trials, load_log_file=None):
    print("Begin tuning...")
    measure_ctx = auto_scheduler.LocalRPCMeasureContext(repeat=1, min_repeat_ms=300, timeout=10)

    tuner = auto_scheduler.TaskScheduler(tasks, task_weights, load_log_file=load_log_file)
    tune_option = auto_scheduler.TuningOptions(
        num_measure_trials=num_measure_trials,  # change this to 20000 to achieve the best performance
        runner=measure_ctx.runner,
        measure_callbacks=[auto_scheduler.RecordToFile(log_file)],
    )

    tuner.tune(tune_option)


run_tuning(int(os.environ.get("ANSOR_TRIALS", "48")))

# Compile with the history best
print("Compile...")
with auto_scheduler.ApplyHistoryBest(log_file):  # noqa: SIM117
    with tvm.transform.PassContext(opt_level=3, config={"relay.backend.use_auto_scheduler": True}):
        lib = relay.build(mod, target=target, params=params)

# Create graph executor
dev = tvm.device(str(target), 0)
module = graph_executor.GraphModule(lib["default"](dev))
data_tvm = tvm.nd.array((np.random.uniform(size=input_shape)).astype(dtype))
module.set_input("data", data_tvm)

# Evaluate
print("Evaluate inference time cost...")
print(module.benchmark(dev, repeat=3, min_repeat_ms=500))

# Tip: distill the log file, which keeps the best records only
auto_scheduler.distill_record_file(log_file, log_file + ".best.json")

# Tip: resume a search from the previous log file
run_tuning(2, load_log_file=log_file)
