"""Raises when it is imported."""

API = (1, 0)

WORTH = 1 / 0
