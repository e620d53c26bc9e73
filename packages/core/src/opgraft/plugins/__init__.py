"""Plugins: found by entry point, loaded when first needed, each in its own compartment."""
