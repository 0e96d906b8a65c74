"""Networks on a GPU: streams, CUDA graphs, recurrences as one kernel.

Law: puts compiled kernels in order; compiles by the driver's folder only.

In reading order:

    files    streams, launch_ways, cuda_graph, parts, cluster_text, recurrence, network
"""
