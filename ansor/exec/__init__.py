"""Programs of the fleet: `python -m ansor.exec.rpc_tracker`, `rpc_server` and `query_rpc_tracker`.

Law: reads arguments and prints; the work is done in `ansor.cluster`.
"""
