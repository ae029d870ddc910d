"""Which names and keywords each release of torch and torchvision has, and what became of those it had.

Data only: nothing here imports torch. The tables are read when somebody asks; see `table` and `changes`.
"""

from trainlint.torch_api.changes import (
    Change,
    Fix,
    changes,
    changes_of,
    changes_of_argument,
    exists,
    offered,
    reduction_of,
    verdict,
)
from trainlint.torch_api.inventions import Invention, inventions
from trainlint.torch_api.table import (
    Availability,
    Parameters,
    canonical,
    is_known,
    keyword,
    lookup,
    parameters,
    release_names,
)
from trainlint.torch_api.table import releases as versions
from trainlint.torch_api.versions import OLDEST_TARGET, Target, Version, resolve_range, shown, target_of, version

__all__ = [
    "OLDEST_TARGET",
    "Availability",
    "Change",
    "Fix",
    "Invention",
    "Parameters",
    "Target",
    "Version",
    "canonical",
    "changes",
    "changes_of",
    "changes_of_argument",
    "exists",
    "inventions",
    "is_known",
    "keyword",
    "lookup",
    "offered",
    "parameters",
    "reduction_of",
    "release_names",
    "resolve_range",
    "shown",
    "target_of",
    "verdict",
    "version",
    "versions",
]
