"""Says no API version."""


def opgraft_devices():
    raise AssertionError("a plugin without a version is never asked")
