"""`blake2b`: the one digest of keys and orders.

Taken from where `hashlib` has it: importing `hashlib` loads OpenSSL, which takes milliseconds of
every process and has no part in this.
"""

from __future__ import annotations

try:
    from _blake2 import blake2b
except ImportError:  # another Python, or a build without it
    from hashlib import blake2b

__all__ = ["blake2b"]
