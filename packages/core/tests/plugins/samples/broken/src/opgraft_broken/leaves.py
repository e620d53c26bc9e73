"""Ends the program when it is imported."""

API = (1, 0)

raise SystemExit("a plugin must not do that")
