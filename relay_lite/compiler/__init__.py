"""From a network to something that runs, and to the tasks that are worth tuning.

The law of this folder: what is compiled means what the graph meant; it measures nothing.
"""
