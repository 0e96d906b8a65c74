"""Tuning the convolutions of a network, and what it brought.

Law: chooses configurations; the backend builds and runs them.
"""
