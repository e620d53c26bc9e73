"""Implements a hook that does not exist."""

API = (1, 0)


def opgraft_device():
    return []
