"""Cards by name, with the memory that their makers give. Pure.

The drivers keep some of it: what is said not to fit here does not fit there either.
"""

from __future__ import annotations

import re

GIB = 2**30
CARDS = {
    "t4": 16,
    "p100": 16,
    "v100-16g": 16,
    "v100-32g": 32,
    "l4": 24,
    "a10": 24,
    "a30": 24,
    "a40": 48,
    "l40s": 48,
    "a6000": 48,
    "rtx3060": 12,
    "rtx3080": 10,
    "rtx3090": 24,
    "rtx4080": 16,
    "rtx4090": 24,
    "rtx5090": 32,
    "a100-40g": 40,
    "a100-80g": 80,
    "h100-80g": 80,
    "h200": 141,
}


def memory_of(name: str) -> int:
    """Bytes of a card by name, or of a size ("24GiB"). Raises ValueError for one that is not known."""
    known = CARDS.get(name.lower())
    if known is not None:
        return known * GIB
    try:
        return size_bytes(name)
    except ValueError:
        raise ValueError(f"--gpu takes one of {', '.join(CARDS)}, or a size such as 24GiB; not {name!r}") from None


def size_bytes(text: str) -> int:
    """Bytes of "4GiB", "500M", "2g": 1024 to the step. Raises ValueError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", text.strip().lower())
    size = float(match[1]) * 1024 ** " kmgt".index(match[2] or " ") if match else 0.0
    if size < 1:
        raise ValueError(f"a size is such as 4GiB or 500MiB, not {text!r}")
    return int(size)
