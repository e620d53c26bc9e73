"""The rows: one file per area. Each file's docstring says what a device is asked in it."""
