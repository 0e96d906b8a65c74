"""`python -m ansor`."""

from .cli.main import run

run()
