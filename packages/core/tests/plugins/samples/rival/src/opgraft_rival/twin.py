"""An entry point of a name that another distribution has, too."""

API = (1, 0)
