"""What a compiled network needs to run: its plan, its memory, executors for the devices, timing, files.

Law: it runs a plan, and knows nothing of passes.
"""
