"""Other linters that read PyTorch code, and which of our rules their codes stand for."""

from __future__ import annotations

from typing import NamedTuple


class Meaning(NamedTuple):
    """A code of another linter, with the rules that look for the same. `word` must occur in the message.

    A finding with `whole_file` speaks of the file and not of the line where it stands.
    """

    code: str
    rules: tuple[str, ...]
    word: str = ""
    whole_file: bool = False


class Peer(NamedTuple):
    """`version` is the one that the table was made for."""

    name: str
    version: str
    command: str
    options: str
    meanings: tuple[Meaning, ...]

    def meaning(self, code: str, message: str) -> Meaning:
        """What a finding stands for; no rules if none of ours looks for that."""
        fitting = (m for m in self.meanings if m.code == code and m.word in message)
        return next(fitting, Meaning(code, ()))

    @property
    def rules(self) -> frozenset[str]:
        return frozenset(rule for meaning in self.meanings for rule in meaning.rules)


def _meanings(*rows: tuple[str, str] | tuple[str, str, str] | tuple[str, str, str, bool]) -> tuple[Meaning, ...]:
    return tuple(Meaning(row[0], tuple(row[1].split()), *row[2:]) for row in rows)


PEERS = (
    Peer(
        "torch-preflight",
        "0.5.0",
        "torch-preflight",
        "",
        _meanings(
            ("TG001", "TL202"),
            ("TG002", "TL201"),
            ("TG003", "TL601"),
            ("TG004", "TL304", "pin_memory"),
            ("TG004", "TL303", "num_workers"),
            ("TG005", "TL609"),
            ("TG006", "", "numerically fragile"),  # advice on code that is right
            ("TG006", "TL609"),
            ("TG007", "TL101 TL102 TL103"),
            ("TG008", "TL619"),
            ("TG010", ""),  # projected memory, needs a target GPU
            ("TG011", "TL605"),
            ("TG012", "TL310"),
            ("TG013", "TL107"),
            ("TG014", "TL606"),
        ),
    ),
    Peer(
        "hotpath-ai",
        "0.1.0",
        "hotpath",
        "--include-heuristics",
        _meanings(
            ("KP001", "TL303"),
            ("KP002", "TL304"),
            ("KP003", "TL101"),
            ("KP004", "TL102", ".cpu is called"),
            ("KP004", "TL106"),
            ("KP005", "TL107"),
            ("KP006", "TL706"),
            ("KP007", ""),  # no torch.compile in the file
            ("KP008", ""),  # no autocast in the file
            ("KP009", "TL708"),
            ("KP010", ""),  # zero_grad without set_to_none, the default since torch 2.0
            ("KP011", "TL105"),
            ("KP012", "TL201", "", True),
            ("KP013", ""),  # torch.tensor of something that may be a tensor
            ("KP014", "TL305"),
            ("KP015", "TL106"),
            ("KP016", ""),  # torch.save in a loop
            ("KP017", "TL102"),
        ),
    ),
    Peer(
        "TorchFix",
        "0.7.0",
        "torchfix",
        "--select=ALL",
        _meanings(
            ("TOR001", "TL901 TL902"),
            ("TOR002", ""),  # require_grad
            ("TOR003", "TL204"),
            ("TOR004", "TL901 TL902"),
            ("TOR101", "TL902"),
            ("TOR102", "TL903"),
            ("TOR103", "TL902"),
            ("TOR104", ""),  # default_collate by its private name
            ("TOR105", ""),
            ("TOR106", ""),  # log1p
            ("TOR107", ""),  # expm1
            ("TOR201", "TL902"),
            ("TOR202", ""),
            ("TOR203", ""),  # style of torchvision imports
            ("TOR401", "TL303"),
            ("TOR901", ""),
        ),
    ),
)
