"""Implements a hook with an argument that it does not have."""

API = (1, 0)


def opgraft_devices(color):
    return []
