"""`python -m ansor`."""

from .cli import run

run()
