"""Many files are held in little room, and come back as they were."""

from __future__ import annotations

import random

import pytest

from trainlint.semantic import packed
from trainlint.semantic.packed import Packed


def _text(number: int) -> bytes:
    return random.Random(number).randbytes(40) * 50


@pytest.mark.parametrize("room", [0, 5_000, 10**9])
def test_what_is_put_in_comes_out(room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "_ROOM", room)
    texts = Packed()
    for number in range(10):
        texts[f"{number}.py"] = _text(number)
    before = texts.reader("3.py")
    texts["3.py"] = b""
    texts["4.py"] = _text(40)
    del texts["5.py"]
    assert before is not None and before() == _text(3)
    assert texts.get("3.py") == b"" and "3.py" in texts
    assert texts.get("4.py") == _text(40)
    assert texts.get("5.py") is None and "5.py" not in texts
    assert all(texts.get(f"{number}.py") == _text(number) for number in (0, 1, 2, 6, 7, 8, 9))


def test_only_what_goes_beyond_the_room_is_compressed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "_ROOM", 5_000)
    texts = Packed()
    for number in range(10):
        texts[f"{number}.py"] = _text(number)
    assert len(texts._plain) == 2 and len(texts._packed) == 8
    assert sum(map(len, texts._packed.values())) < 8 * 2_000 / 4
    del texts["0.py"]
    texts["10.py"] = _text(10)
    assert "10.py" in texts._plain


def test_what_is_replaced_gives_its_room_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "_ROOM", 2_500)
    texts = Packed()
    texts["a.py"] = _text(1)
    texts["a.py"] = _text(2) * 2  # more than there is room for
    texts["b.py"] = _text(3)
    assert list(texts._packed) == ["a.py"] and list(texts._plain) == ["b.py"]
    assert texts.get("a.py") == _text(2) * 2
