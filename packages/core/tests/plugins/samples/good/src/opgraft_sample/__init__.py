"""A sample plugin: a device, a compiler pair, an optimizer, equalities, a command, a setting."""
