"""One cause, one finding: which rule speaks where several flag the same thing, and hits that are one finding.

The order is that of RULES.md, "One cause, one finding".
"""

from __future__ import annotations

# (the rule that speaks, the rules that are silent on the same expression)
FIRST = (
    ("TL611", ("TL101", "TL102", "TL103", "TL202")),
    ("TL112", ("TL321", "TL102")),
    ("TL109", ("TL101", "TL102", "TL103")),
    ("TL111", ("TL101", "TL102", "TL103")),
    ("TL702", ("TL101", "TL103")),
    ("TL101", ("TL103",)),
    ("TL313", ("TL107",)),
    ("TL507", ("TL901", "TL902")),
    ("TL209", ("TL901", "TL902")),
    ("TL409", ("TL901", "TL902")),
    ("TL402", ("TL403", "TL401")),
    ("TL405", ("TL401",)),
    ("TL306", ("TL305",)),
)
