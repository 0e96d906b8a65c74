"""A cost model that comes with the package: trees that were trained on logs of many tasks."""
