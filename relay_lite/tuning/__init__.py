"""The main job for a whole network: load it, tune its tasks, compile it, check it and measure it.

The law of this folder: all results are in the log, so whatever stops can go on.
"""
