"""Plugins that are broken, one of every kind."""
