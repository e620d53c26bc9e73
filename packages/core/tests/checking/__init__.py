"""Test tools that judge rules by machine: a generator, two oracles, the checker, the fuzzer.

`python -m checking.check` and `python -m checking.fuzz`, with packages/core/tests on the path.
"""
