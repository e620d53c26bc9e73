"""Imports the core and works with it at its top level, in a circle."""

from opgraft import Device, UOp, simplify

API = (1, 0)

x = UOp.variable("x", 0, 9)
HALF = simplify((x * 4 + 2) // 4)
DEFAULT = Device.default
