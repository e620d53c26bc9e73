"""opgraft-cl: OpenCL for opgraft. `plugin.py` is what the entry point names."""
