"""The C engine, compiled when the package is built; the rest is in pyproject.toml."""

from setuptools import setup

setup(cffi_modules=["engine_build.py:builder"])
