"""Installs ansor; the metadata stands in pyproject.toml."""

from setuptools import setup

setup()
