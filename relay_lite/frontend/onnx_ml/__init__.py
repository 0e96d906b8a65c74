"""Operators of `ai.onnx.ml`, the models of tables that scikit-learn and its kin export; the folder may be deleted.

Law: they are made of operators of the graph, and reached through the table alone.
"""
