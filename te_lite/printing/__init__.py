"""States and computations as text, Python and JSON, and the hooks of values, which are filled here.

Law: reads what the folders below made; none of them imports it.

In reading order:

    files    state_text, python_text, dag_json, dag_difference, methods
"""
