"""One full name per class and function through all releases, although torch moves them between its files.

`torch.Tensor` was defined in `torch.tensor` up to 1.7 and is in `torch._tensor` since: its members belong on one line
of the table. What a public name meant in an older release is taken to be what the same name means in the newest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from trainlint.torch_api.extraction.snapshot import Class, Module, Name, Snapshot


def align(snapshots: Sequence[Snapshot]) -> list[Snapshot]:
    """The snapshots, oldest first, with the origins of older ones renamed to those of the newest."""
    newest_origin: dict[tuple[str, str], str] = {}
    aligned: list[Snapshot] = []
    for snapshot in reversed(snapshots):
        renamed = _moves(snapshot, newest_origin)
        aligned.append(_rename(snapshot, renamed) if renamed else snapshot)
        for module_name, module in aligned[-1].modules.items():
            for leaf, name in module.names.items():
                if name.kind in ("class", "function"):
                    newest_origin.setdefault((module_name, leaf), name.origin)
    return aligned[::-1]


def _moves(snapshot: Snapshot, newest_origin: dict[tuple[str, str], str]) -> dict[str, str]:
    moves = dict(_RENAMED)
    # The shortest public name decides: `torch.Tensor` before `torch.functional.Tensor`.
    for module_name in sorted(snapshot.modules, key=lambda name: (name.count("."), name)):
        for leaf, name in snapshot.modules[module_name].names.items():
            newer = newest_origin.get((module_name, leaf))
            if newer is None or newer == name.origin or name.kind not in ("class", "function"):
                continue
            # A wrapper that took over the name is not the same thing moved.
            if newer.rpartition(".")[2] == name.origin.rpartition(".")[2]:
                moves.setdefault(name.origin, newer)
    return moves


# The base class of Tensor in the extension, renamed in 2.1.
_RENAMED = {"torch._C._TensorBase": "torch._C.TensorBase"}


def _rename(snapshot: Snapshot, moves: dict[str, str]) -> Snapshot:
    def new(origin: str) -> str:
        return moves.get(origin, origin)

    modules = {
        module_name: Module(
            {leaf: Name(name.kind, new(name.origin)) for leaf, name in module.names.items()},
            module.open,
            module.package,
        )
        for module_name, module in snapshot.modules.items()
    }
    classes: dict[str, Class] = {}
    for origin, found in snapshot.classes.items():
        classes.setdefault(new(origin), replace(found, bases=tuple(new(base) for base in found.bases)))
    parameters: dict[str, str] = {}
    for origin, words in snapshot.parameters.items():
        parameters.setdefault(new(origin), words)
    return Snapshot(modules, classes, parameters, snapshot.externals)
