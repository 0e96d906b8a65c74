"""Runners that need no device: answers from a log, or estimates.

Law: no processes, no devices.
"""
