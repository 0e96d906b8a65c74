"""From a network to something that runs, and to the tasks that are worth tuning.

Law: what is compiled means what the graph meant; nothing is measured.
"""
