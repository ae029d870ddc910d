"""Files of which each is written by whoever comes first: a loop that skips what is there already."""

from __future__ import annotations

from trainlint.semantic import walk
from trainlint.semantic.facts import Call, Expr, For, Name

_ASKS = frozenset({"exists", "isfile", "is_file", "lexists"})


def is_left_to_one(call: Call, path: Expr) -> bool:
    """`for name in names: ... if os.path.exists(path): continue ... torch.save(x, path)`, the path another one each turn."""
    names = {e.id for e in walk.inside(path) if isinstance(e, Name)}
    skipped = False
    for frame in call.context.local_frames():
        if frame.kind == "branch" and frame.rest and frame.test is not None:
            asked = [e for e in walk.inside(frame.test) if isinstance(e, Call) and e.attr in _ASKS]
            skipped = skipped or any(isinstance(e, Name) and e.id in names for a in asked for e in walk.inside(a))
        elif frame.kind == "loop" and isinstance(frame.record, For):
            return skipped
    return False
