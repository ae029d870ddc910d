from trainlint.findings import Claim, Level
from trainlint.rules.rule import Rule


class PersistentWorkersMissing(Rule):
    """What the stand-in finds as TL305."""

    code, name, level, claim = "TL305", "persistent-workers-missing", Level.ADVICE, Claim.LOADER
    message, why, help = "m", "w", "h"
