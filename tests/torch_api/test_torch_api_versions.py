"""Versions and ranges of them."""

from __future__ import annotations

import pytest

from trainlint.torch_api import Target, resolve_range, shown, target_of, version, versions

NEW = versions()[-1]


@pytest.mark.parametrize(
    ("text", "number"), [("2.5", (2, 5)), ("2.13.0+cpu", (2, 13)), (" v1.13.1 ", (1, 13)), ("2.10", (2, 10))]
)
def test_versions_are_read_as_numbers(text: str, number: tuple[int, int]) -> None:
    assert version(text) == number
    assert version(shown(number)) == number


@pytest.mark.parametrize("text", ["", "two", "2", "nightly"])
def test_what_is_no_version_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a version"):
        version(text)


def test_open_ends_are_closed() -> None:
    assert resolve_range(None, None, versions()) == Target(NEW, NEW)
    assert resolve_range((2, 3), None, versions()) == Target((2, 3), NEW)
    assert resolve_range(None, (2, 5), versions()) == Target((2, 0), (2, 5))
    assert resolve_range(None, (1, 13), versions()) == Target((1, 13), (1, 13))
    assert resolve_range((9, 9), None, versions()) == Target((9, 9), (9, 9))


@pytest.mark.parametrize(
    ("specifiers", "low", "high"),
    [
        ([">=2.1,<2.5"], (2, 1), (2, 4)),
        (["==2.4.1"], (2, 4), (2, 4)),
        (["~=2.3"], (2, 3), NEW),
        (["<=2.6"], (2, 0), (2, 6)),
        ([">=1.13"], (1, 13), NEW),
        ([">=2.0", "<2.7"], (2, 0), (2, 6)),
        (["!=2.2.0"], (2, 0), NEW),
        (["==9.1.0"], (9, 1), (9, 1)),
        ([], NEW, NEW),
    ],
)
def test_specifiers_bound_the_range(specifiers: list[str], low: tuple[int, int], high: tuple[int, int]) -> None:
    assert target_of(specifiers, versions()) == (Target(low, high), True)


def test_specifiers_that_contradict_each_other_mean_the_newest() -> None:
    assert target_of([">=2.5", "<2.1"], versions()) == (Target(NEW, NEW), False)
