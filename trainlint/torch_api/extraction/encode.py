"""Snapshots of several releases merged into the text that `trainlint.torch_api.table` reads.

One line per module or class, so that a difference between two regenerations can be read:

    torch.optim m0h lr_scheduler/ ... @torch.optim.adam +Adam ...
    torch.optim.adam.Adam c0h torch.optim.optimizer.Optimizer step

The second word is the kind (m, c), the first and last release in which it was seen (an index into the list of
releases, written as one character of `DIGITS`), and `*` where names may exist that are not listed. A class then lists
its bases (`-` for none). Then come names: a sigil for the kind (`+` class, `/` module, `=` value, `!` from another
library, none for a function), the name, `>name` where it has another name at its origin, `~` and two digits where its
releases are not those of its module. `@module` says where the names after it were defined, `@.` that they are packages
of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from trainlint.torch_api.extraction.snapshot import Class, Module, Name, Snapshot

DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_SIGILS = {"class": "+", "module": "/", "value": "=", "external": "!", "function": ""}


def encode_names(snapshots: Sequence[Snapshot]) -> Iterator[str]:
    """The lines for modules and classes."""
    for module in sorted({name for snapshot in snapshots for name in snapshot.modules}):
        yield _module_line(module, [snapshot.modules.get(module) for snapshot in snapshots])
    for owner in sorted({name for snapshot in snapshots for name in snapshot.classes}):
        yield _class_line(owner, [snapshot.classes.get(owner) for snapshot in snapshots])


def encode_parameters(snapshots: Sequence[Snapshot]) -> Iterator[str]:
    """The lines for callables: `name 0a:first parameters|bh:later ones`."""
    for name in sorted({name for snapshot in snapshots for name in snapshot.parameters}):
        runs: list[tuple[int, int, str]] = []
        for index, snapshot in enumerate(snapshots):
            parameters = snapshot.parameters.get(name)
            if parameters is None:
                continue
            if runs and runs[-1][2] == parameters and runs[-1][1] == index - 1:
                runs[-1] = (runs[-1][0], index, parameters)
            else:
                runs.append((index, index, parameters))
        yield f"{name} " + "|".join(f"{_range((first, last))}:{parameters}" for first, last, parameters in runs)


def unsure_names(snapshots: Sequence[Snapshot]) -> list[str]:
    """Names that some module imports from elsewhere (`math`, `Any`): any other module may have them too."""
    return sorted({name for snapshot in snapshots for name in snapshot.externals if name.isidentifier()})


def _module_line(module: str, states: Sequence[Module | None]) -> str:
    span = _span(index for index, state in enumerate(states) if state is not None)
    newest = [state for state in states if state is not None][-1]
    is_open = "*" if any(state is not None and state.open for state in states) else ""
    merged: dict[str, tuple[Name, tuple[int, int]]] = {}
    for name in sorted({name for state in states if state is not None for name in state.names}):
        where = [index for index, state in enumerate(states) if state is not None and name in state.names]
        state = states[where[-1]]
        assert state is not None
        entry = state.names[name]
        kinds = {state.names[name].kind for state in states if state is not None and name in state.names}
        if kinds == {"external"} and not newest.package:
            continue  # only a package lists what it imports from other libraries; see `unsure_names`
        if newest.open and name not in newest.names:
            continue  # it may still be there without being listed
        if name.startswith("_") and not (entry.kind == "module" and entry.origin == f"{module}.{name}"):
            # Private names come and go: they are kept where they went, which is what breaks a script.
            if name in newest.names:
                continue
        merged[name] = (entry, _span(where))
    groups: dict[str, list[str]] = {}
    for name, (entry, own_span) in merged.items():
        origin, _, leaf = entry.origin.rpartition(".")
        word = _SIGILS[entry.kind] + name
        if leaf != name and entry.kind != "external":
            word += f">{leaf}"
        if own_span != span:
            word += f"~{_range(own_span)}"
        own = origin == module or entry.kind == "external"
        groups.setdefault("" if own else origin or ".", []).append(word)
    words = groups.pop("", [])
    for origin in sorted(groups):
        words += [f"@{origin}", *groups[origin]]
    return " ".join([module, f"m{_range(span)}{is_open}", *words])


def _class_line(owner: str, states: Sequence[Class | None]) -> str:
    span = _span(index for index, state in enumerate(states) if state is not None)
    newest = [state for state in states if state is not None][-1]
    is_open = "*" if any(state is not None and state.open for state in states) else ""
    words = [owner, f"c{_range(span)}{is_open}", ",".join(newest.bases) or "-"]
    for member in sorted({member for state in states if state is not None for member in state.members}):
        if newest.open and member not in newest.members:
            continue  # it may still be there without being listed
        own = _span(index for index, state in enumerate(states) if state is not None and member in state.members)
        words.append(member if own == span else f"{member}~{_range(own)}")
    return " ".join(words)


def _span(indices: Iterable[int]) -> tuple[int, int]:
    found = list(indices)
    return found[0], found[-1]


def _range(span: tuple[int, int]) -> str:
    return DIGITS[span[0]] + DIGITS[span[1]]
