"""The text of many files, in little room: as it is while there are few, compressed to a quarter once there are many."""

from __future__ import annotations

from collections.abc import Callable

_ROOM = 8_000_000  # bytes that are held as they are: more than all but the largest projects have
_SMALL = 500  # bytes; not worth it


class Packed:
    """Bytes by the path of their file."""

    __slots__ = ("_packed", "_plain", "_room")

    def __init__(self) -> None:
        self._plain: dict[str, bytes] = {}
        self._packed: dict[str, bytes] = {}
        self._room = _ROOM

    def __contains__(self, path: str) -> bool:
        return path in self._plain or path in self._packed

    def get(self, path: str) -> bytes | None:
        read = self.reader(path)
        return None if read is None else read()

    def reader(self, path: str) -> Callable[[], bytes] | None:
        """What gives the bytes that are held now, also when they have been replaced."""
        found = self._plain.get(path)
        if found is not None:
            return lambda: found
        packed = self._packed.get(path)
        return None if packed is None else lambda: _unpacked(packed)

    def __setitem__(self, path: str, data: bytes) -> None:
        if path in self:
            del self[path]
        if len(data) > self._room and len(data) > _SMALL:
            import zlib

            self._packed[path] = zlib.compress(data, 1)
        else:
            self._room -= len(data)
            self._plain[path] = data

    def __delitem__(self, path: str) -> None:
        if path in self._plain:
            self._room += len(self._plain.pop(path))
        else:
            del self._packed[path]


def _unpacked(data: bytes) -> bytes:
    import zlib

    return zlib.decompress(data)
