"""Remembered answers to questions that can lead back to themselves: `a = f(a)`, functions that call each other.

A question met again while it is being answered gets a default. Answers that rest on such a default hold only until the
question at the head of the circle is answered; then they are forgotten, and asked again on what is known by then.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

_NEVER = 1 << 30


class Solver:
    """One for all questions of an analysis, so that circles across kinds of questions are seen."""

    def __init__(self, deepest: int) -> None:
        self.deepest = deepest
        self._provisional: dict[Hashable, tuple[Any, int]] = {}
        self._pending: list[Hashable] = []  # provisional keys, in the order in which they came
        self._active: dict[Hashable, int] = {}
        self._head = _NEVER  # depth of the lowest question that the answers of the current one rest on
        self.settled = False  # whether the last answer holds for good

    def solve(
        self, key: Hashable, compute: Callable[[], Any], default: Any, memory: dict[Hashable, Any] | None = None
    ) -> Any:
        """`memory` is that of the file that the question is about, so that what is known of a file goes with it; who gives
        none keeps the answer himself, if it is `settled`."""
        if memory is not None and key in memory:
            return memory[key]
        self.settled = False
        held = self._provisional.get(key)
        if held is not None:
            if held[1] < self._head:
                self._head = held[1]
            return held[0]
        depth = self._active.get(key)
        if depth is not None:
            if depth < self._head:
                self._head = depth
            return default
        depth = len(self._active)
        if depth >= self.deepest:
            self._head = min(self._head, 0)
            return default
        outer, self._head = self._head, _NEVER
        mark = len(self._pending)
        self._active[key] = depth
        try:
            result = compute()
        finally:
            del self._active[key]
            head, self._head = self._head, outer
        self.settled = head >= depth
        if self.settled:
            if memory is not None:
                memory[key] = result
            for pending in self._pending[mark:]:
                self._provisional.pop(pending, None)
            del self._pending[mark:]
        else:
            self._provisional[key] = (result, head)
            self._pending.append(key)
            if head < self._head:
                self._head = head
        return result
