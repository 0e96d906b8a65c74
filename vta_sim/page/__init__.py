"""TVM's tutorial page on tuning for VTA, in simulation: what the code of the page imports, under the page's names.

    from vta_sim.page import autotvm, graph_runtime, relay, rpc, te, topi, tvm, utils, vta

Most of it is somewhere else in these packages under its own name; what is here only makes the two meet.
"""
