"""Fuzz of the whole way: random computations through search, lowering and both backends, against plain NumPy.

description.py    what a random DAG is: plain data, to and from JSON
draw.py           random descriptions (indices.py: their indices; values.py: their expressions)
numpy_oracle.py   what a description means, with a bound of the rounding error of every element
bounded.py, operators.py, folds.py, index_values.py   the values of the oracle, and what is done with them
random_inputs.py  the arrays that a description is run on
build.py          a description as tensors of te_lite
programs.py       sketches, samples, features, estimates, lowering, verification: programs of one DAG
run_c.py, run_cuda.py   many programs compiled at once and run on guarded arrays
batch.py          some DAGs from beginning to end, in one process
farm.py           many batches in processes with a time limit
shrink.py         the smallest description that still fails in the same way
totals.py         what was run so far, in a committed file
network.py, network_oracle.py, network_run.py   the same for random networks of relay_lite
model.py          what a random ONNX model is; model_draw.py, draw_rows.py, draw_moves.py, drawing.py draw it
model_oracle.py   what it means, of onnx_elements.py, onnx_rows.py, onnx_moves.py,
                  onnx_recurrent.py and blocks.py; model_run.py runs it
asks.py           the first round of a search; named.py: tasks of networks by name and of ONNX models
lanes.py          what is looked at of programs in lanes

`python -m tests.whole_way --seeds 0:1000 --jobs 2` runs a range of seeds, `--wide` computations over all dtypes,
`--models` ONNX models, `--graphs` networks.
"""
