"""BLAKE2b, without the rest of `hashlib`: to load that and OpenSSL takes longer than to check a small file."""

try:
    from _blake2 import blake2b
except ImportError:  # another Python than CPython
    from hashlib import blake2b

__all__ = ["blake2b"]
