"""The main job for a whole network: load it, tune its tasks, compile it, check it and measure it.

Law: every result is in the log, so that whatever stops can go on.
"""
