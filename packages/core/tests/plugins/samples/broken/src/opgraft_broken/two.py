"""Says its version in words."""

API = "two"
