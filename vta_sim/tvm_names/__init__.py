"""TVM's tutorial page on tuning for VTA, in simulation: what the code of the page imports, under the page's names.

    from vta_sim.tvm_names import autotvm, graph_runtime, relay, rpc, te, topi, tvm, utils, vta

Law: names only; what they stand for is somewhere else in these packages under its own name.
"""
