"""Kernels for tests of lowering and scheduling, and the oracle that says what they mean."""
