"""Commands that are to be compared run in turn, again and again, so that what else the machine does hits all of them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from benchmarks.running import Cost, Failed

# name -> what one run of it costs
Contenders = Mapping[str, Callable[[], Cost]]


class Spread(NamedTuple):
    """The middle of some numbers, and how far they lie apart."""

    middle: float
    low: float
    high: float


class Measured(NamedTuple):
    """The costs of each contender, one a round. `failures` says why one has none."""

    costs: Mapping[str, Sequence[Cost]]
    failures: Mapping[str, str]

    def cpu(self, name: str) -> Spread:
        return spread([cost.cpu for cost in self.costs[name]])

    def wall(self, name: str) -> Spread:
        return spread([cost.wall for cost in self.costs[name]])

    def memory(self, name: str) -> int:
        return max(cost.memory for cost in self.costs[name])

    def ratio(self, name: str, base: str) -> Spread:
        """CPU time of `name` to that of `base`, each round by itself: both had the same neighbours."""
        pairs = zip(self.costs[name], self.costs[base], strict=True)
        return spread([one.cpu / other.cpu for one, other in pairs])


def spread(numbers: Sequence[float]) -> Spread:
    return Spread(statistics.median(numbers), min(numbers), max(numbers))


def alternate(contenders: Contenders, rounds: int, say: Callable[[str], None] = lambda _: None) -> Measured:
    """Each contender once a round. One that fails is left out from then on, with what it had."""
    costs: dict[str, list[Cost]] = {name: [] for name in contenders}
    failures: dict[str, str] = {}
    for number in range(rounds):
        for name in order(list(contenders), number):
            if name in failures:
                continue
            try:
                cost = contenders[name]()
            except Failed as failed:
                failures[name] = str(failed)
                say(f"{name} failed: {failed}")
                continue
            costs[name].append(cost)
            say(f"round {number + 1}, {name}: {cost.cpu:.2f} s CPU, {cost.wall:.2f} s, {cost.memory / 1e6:.0f} MB")
    return Measured({name: own for name, own in costs.items() if name not in failures}, failures)


def order(names: Sequence[str], number: int) -> list[str]:
    """Every round begins with another one, and every second round goes backwards: nobody always follows the same."""
    step = -1 if number % 2 else 1
    return [names[(number + step * place) % len(names)] for place in range(len(names))]
