"""What the launches did to files, gathered from their journals: the same in every form of the report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from runtime_check.launch import Outcome


@dataclass(frozen=True)
class SideEffects:
    moved: tuple[tuple[str, int], ...]  # made in the project, moved to the run's folder: path, bytes
    redirected: tuple[str, ...]  # was there and was written to: the launch worked on a copy
    kept: tuple[tuple[str, str], ...]  # deleted or renamed as far as the script saw: path, operation
    refused: tuple[tuple[str, str], ...]  # an error in the script: path, operation
    elsewhere: tuple[str, ...]  # made outside the project, left there
    saves: tuple[dict[str, Any], ...]
    commands: tuple[str, ...]  # other programs that the script ran: not guarded

    @property
    def any(self) -> bool:
        return bool(self.moved or self.redirected or self.kept or self.refused or self.elsewhere or self.commands)


#: Written to, or another file took its place (`os.replace`).
_WORKED_ON_A_COPY = {("shadow", ""), ("hide", "overwrite")}


def gather(outcomes: tuple[Outcome, ...]) -> SideEffects:
    lines = [line for outcome in outcomes for line in outcome.journal]
    moved: dict[str, int] = {}
    elsewhere: dict[str, None] = {}
    saves: dict[tuple[str, int], dict[str, Any]] = {}
    for outcome in outcomes:
        for path, size in outcome.left.get("moved", ()):
            moved[path] = max(size, moved.get(path, 0))
        elsewhere.update(dict.fromkeys(outcome.left.get("elsewhere", ())))
        for result in outcome.results:
            for save in result.get("saves", ()):
                saves[save["path"], save["site"][1]] = save
    return SideEffects(
        moved=tuple(sorted(moved.items())),
        redirected=tuple(sorted({path for what, path, detail in lines if (what, detail) in _WORKED_ON_A_COPY})),
        kept=tuple(
            sorted({(path, detail) for what, path, detail in lines if what == "hide" and detail != "overwrite"})
        ),
        refused=tuple(sorted({(path, detail) for what, path, detail in lines if what == "refused"})),
        elsewhere=tuple(elsewhere),
        saves=tuple(saves.values()),
        commands=tuple(sorted({detail for what, _, detail in lines if what == "command"})),
    )
