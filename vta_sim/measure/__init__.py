"""The simulated machine as a device that measures programs.

Law: programs travel as data; nothing here chooses one.
"""
