"""Programs of the fleet: `python -m ansor.exec.rpc_tracker`, `rpc_server` and `query_rpc_tracker`."""
