from trainlint.findings import Claim, Level
from trainlint.rules.rule import Rule


class DataParallel(Rule):
    """What the stand-in finds as TL501."""

    code, name, level, claim = "TL501", "data-parallel", Level.WARNING, Claim.TIME
    message, why, help = "m", "w", "h"
