"""Policies: what to measure next, the loop around it, its options and callbacks.

Law: knows no device; whoever measures tells it.
"""
