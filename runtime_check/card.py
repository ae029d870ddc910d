"""What CUDA's own error says of the card when memory runs out: how much was asked for, and who else holds some of it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from runtime_check.measures import bytes_text

_SIZE = r"([0-9.]+) (bytes|KiB|MiB|GiB|TiB)"
_UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}

# c10/cuda/CUDACachingAllocator.cpp. Torch names the processes only where NVML answers, and itself only where it finds
# its own process id among them (not in every container).
_TRIED = re.compile(rf"Tried to allocate {_SIZE}")
_TOTAL = re.compile(rf"total capacity of {_SIZE}")
_FREE = re.compile(rf"of which {_SIZE} is free")
_OURS = re.compile(rf"this process has {_SIZE} memory in use")
_OTHER = re.compile(rf"Process (\d+) has {_SIZE} memory in use")
_ALLOCATED = re.compile(rf"{_SIZE} is allocated by PyTorch")


@dataclass(frozen=True)
class Card:
    """In bytes. `others`: process id -> what it holds. `ours` None: the process did not find itself in the list."""

    tried: int
    total: int
    free: int
    allocated: int
    ours: int | None
    others: dict[int, int]

    @property
    def held_by_others(self) -> int:
        return sum(self.others.values())

    @property
    def would_fit_alone(self) -> bool:
        """What was asked for is there once the others are gone."""
        return bool(self.others) and self.tried <= self.free + self.held_by_others


def read_card(message: str) -> Card | None:
    """None when the message is not CUDA's, or says nothing of the card."""
    tried, total, free = _bytes(_TRIED, message), _bytes(_TOTAL, message), _bytes(_FREE, message)
    if tried is None or total is None or free is None:
        return None
    allocated = _bytes(_ALLOCATED, message) or 0
    ours = _bytes(_OURS, message)
    others = {int(pid): _size(number, unit) for pid, number, unit in _OTHER.findall(message)}
    if ours is None and others:
        # One of those named is this process: the one that holds what torch has allocated, and least more than that.
        own = [pid for pid, held in others.items() if held >= allocated]
        if own:
            ours = others.pop(min(own, key=lambda pid: others[pid]))
    return Card(tried, total, free, allocated, ours, others)


def shared_card(message: str) -> str | None:
    """Memory ran out because other processes are on the card: who holds how much. None when that is not the cause."""
    card = read_card(message)
    if card is None or not card.would_fit_alone:
        return None
    held = ", ".join(f"process {pid} holds {bytes_text(size)}" for pid, size in sorted(card.others.items()))
    return (
        f"the card is shared: {held} of its {bytes_text(card.total)}. Without that, the {bytes_text(card.tried)} that "
        "were asked for would have fitted."
    )


def side_by_side_fails(messages: Sequence[str], one_alone_fits: bool) -> str | None:
    """Two runs on one card, of which at least one ended with these errors: why they go one after the other from here.

    None when their memory is not the cause: then sharing the card changes nothing.
    """
    shared = [message for message in messages if shared_card(message) is not None]
    if not one_alone_fits or not shared:
        return None
    card = read_card(shared[0])
    assert card is not None
    ours = card.total - card.free - card.held_by_others if card.ours is None else card.ours
    return (
        f"two runs side by side do not fit on this card ({bytes_text(ours)} and {bytes_text(card.held_by_others)} of "
        f"{bytes_text(card.total)}): they ran one after the other, so what changed on the machine in between is in "
        "the difference."
    )


def _bytes(pattern: re.Pattern[str], message: str) -> int | None:
    found = pattern.search(message)
    return _size(found[1], found[2]) if found else None


def _size(number: str, unit: str) -> int:
    return int(float(number) * _UNITS[unit])
