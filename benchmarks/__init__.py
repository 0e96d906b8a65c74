"""Benchmarks, run as `python -m benchmarks.NAME`; what a script does not find installed, it says in one sentence."""

from benchmarks.needs import say_what_is_missing

say_what_is_missing()
