"""Gives things that are none of what was asked for."""

API = (1, 0)


def opgraft_devices():
    return ["JUNK", 42]


def opgraft_optimizers():
    return 7
