from trainlint.findings import Claim, Level
from trainlint.rules.rule import Rule


class ItemInHotLoop(Rule):
    """What the stand-in finds as TL101."""

    code, name, level, claim = "TL101", "item-in-hot-loop", Level.WARNING, Claim.SYNC
    message, why, help = "m", "w", "h"
