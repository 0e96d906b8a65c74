"""Networks for the machine: packing, the tasks to tune, and the kernels that a network is made of.

Law: rewrites, divides and describes graphs; runs nothing but the reference in NumPy.
"""

from .extract import conv_workloads, extract_from_program
from .machine_kernel import MachineKernel, RunKernel, Workload
from .pack import graph_pack

__all__ = ["MachineKernel", "RunKernel", "Workload", "conv_workloads", "extract_from_program", "graph_pack"]
