"""Operators of `com.microsoft`, which onnxruntime's optimizer and quantizer write; the folder may be deleted.

Law: they are made of operators of the graph and of ONNX's, and reached through the table alone.
"""
