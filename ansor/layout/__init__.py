"""How constant weights are stored so that a program reads them in order.

Law: from states only; no score, no clock.
"""
