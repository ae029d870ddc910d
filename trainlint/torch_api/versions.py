"""Releases of torch as plain tuples, and the range of them that a project asks for."""

from __future__ import annotations

from collections.abc import Iterable

from trainlint.patterns_on_use import Pattern
from trainlint.records import NamedTuple

Version = tuple[int, int]  # major, minor: names come and go with minor releases

_NUMBERS = Pattern(r"(\d+)\.(\d+)")
_NAMED = Pattern(r"(\d+)\.(\d+)(?:\.(\d+))?")
# No minor release of torch had more patch releases.
_PATCHES = 4

# Where nothing bounds a range from below. The table looks further back, to know names that are gone; a project that
# says only `torch<2.6` is not taken to need 1.7.
OLDEST_TARGET: Version = (2, 0)


def version(text: str) -> Version:
    """`"2.5.1+cu121"` as `(2, 5)`.

    Raises:
        ValueError: the text does not start with two numbers.
    """
    found = _NUMBERS.match(text.strip().lstrip("vV"))
    if found is None:
        raise ValueError(f"not a version of torch: {text!r}")
    return int(found[1]), int(found[2])


def shown(number: Version) -> str:
    """`(2, 5)` as `"2.5"`."""
    return f"{number[0]}.{number[1]}"


class Target(NamedTuple):
    """The releases that a script must run with: what is gone is judged at `high`, what may be used instead at `low`."""

    low: Version
    high: Version


def resolve_range(low: Version | None, high: Version | None, releases: tuple[Version, ...]) -> Target:
    """The target with its open ends closed.

    An open high end is the newest of `releases` (or `low`, if that is newer still); an open low end is `OLDEST_TARGET`
    (or `high`, if that is older still). Nothing given at all is the newest release alone.
    """
    newest = max(releases)
    if low is None and high is None:
        return Target(newest, newest)
    high_end = high if high is not None else max(newest, low or newest)
    low_end = low if low is not None else min(OLDEST_TARGET, high_end)
    return Target(min(low_end, high_end), high_end)


def target_of(specifiers: Iterable[str], releases: tuple[Version, ...]) -> tuple[Target, bool]:
    """The range in which all of the specifiers (`">=2.1,<2.5"`) hold, and whether there is one.

    Without specifiers, and where they contradict each other, the target is the newest release alone.

    Raises:
        packaging.specifiers.InvalidSpecifier: a specifier cannot be read.
    """
    texts = [text for text in specifiers if text.strip()]
    if not texts:
        return resolve_range(None, None, releases), True
    from packaging.specifiers import SpecifierSet  # costs 10 ms, and most runs never ask

    wanted = SpecifierSet(",".join(texts))
    numbers = {(*release, patch) for release in releases for patch in range(_PATCHES)}
    # A version that a specifier names may be newer than the table, or lie between two of its releases.
    found = _NAMED.finditer(",".join(texts))
    numbers |= {(int(one[1]), int(one[2]), int(one[3] or 0)) for one in found}
    fitting = {number[:2] for number in numbers if wanted.contains(".".join(map(str, number)), prereleases=True)}
    if not fitting:
        return resolve_range(None, None, releases), False
    low_is_open = wanted.contains("0.1", prereleases=True)
    high_is_open = wanted.contains("99.0", prereleases=True)
    high = max(releases) if high_is_open and low_is_open else None if high_is_open else max(fitting)
    return resolve_range(None if low_is_open else min(fitting), high, releases), True
