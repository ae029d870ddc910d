"""Records are the named tuples of the standard library in all that is asked of them."""

from __future__ import annotations

import pickle
import sys
import typing

import pytest

from trainlint import records
from trainlint.records import NamedTuple


class Place(NamedTuple):
    """Where something is."""

    row: int
    column: int = 1
    note: str = ""

    @property
    def shown(self) -> str:
        return f"{self.row}:{self.column}"


class Usual(typing.NamedTuple):
    """Where something is."""

    row: int
    column: int = 1
    note: str = ""


class Nothing(NamedTuple):
    """Without fields."""


def test_they_are_made_by_position_and_by_name() -> None:
    assert Place(3) == Place(row=3, column=1) == (3, 1, "")
    assert Place(3, note="x")._replace(row=4) == (4, 1, "x")
    assert Place._make([1, 2, "y"]).shown == "1:2"
    assert Nothing() == ()


@pytest.mark.parametrize("wrong", [{}, {"column": 2}, {"row": 1, "rows": 2}])
def test_wrong_arguments_are_refused_by_name(wrong: dict[str, int]) -> None:
    with pytest.raises(TypeError) as own:
        Place(**wrong)  # type: ignore[call-arg, arg-type]
    with pytest.raises(TypeError) as usual:
        Usual(**wrong)  # type: ignore[call-arg, arg-type]
    assert str(own.value).rpartition("__new__")[2] == str(usual.value).rpartition("__new__")[2]


def test_an_unknown_field_is_refused() -> None:
    with pytest.raises((ValueError, TypeError), match="rows"):
        Place(1)._replace(rows=2)  # type: ignore[call-arg]


def test_they_show_and_tell_themselves_as_usual() -> None:
    own, usual = Place(1, 2, "z"), Usual(1, 2, "z")
    assert repr(own) == repr(usual).replace("Usual", "Place")
    assert own._asdict() == usual._asdict()
    assert own._fields == usual._fields
    assert Place.__doc__ == Usual.__doc__
    assert Place.__match_args__ == Usual.__match_args__
    assert hash(own) == hash(usual)
    match own:
        case Place(row=row, note="z"):
            assert row == 1
        case _:
            pytest.fail("no match")


def test_they_hold_nothing_else_and_do_not_change() -> None:
    place = Place(1)
    with pytest.raises(AttributeError):
        place.row = 2  # type: ignore[misc]
    with pytest.raises(AttributeError):
        place.other = 2  # type: ignore[attr-defined]


def test_they_go_to_other_processes() -> None:
    assert pickle.loads(pickle.dumps(Place(1, 2, "z"))) == Place(1, 2, "z")
    assert type(pickle.loads(pickle.dumps(Place(1)))) is Place


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="typing's own are used there")
def test_what_is_compiled_is_shared() -> None:
    assert records._code(3) is records._code(3)
    assert Place.__new__.__code__.co_code == Usual.__new__.__code__.co_code
