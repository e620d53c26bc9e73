"""The other plugin named twin."""

API = (1, 0)
