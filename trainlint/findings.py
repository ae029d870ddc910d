"""What a check yields: findings, where they stand, and how grave they are."""

# No `from __future__ import annotations` here: NamedTuple would compile each annotation of each field at every start.

from enum import Enum, IntEnum

from trainlint.records import NamedTuple


class Level(IntEnum):
    """How grave a finding is. Ordered: `level >= Level.WARNING` is what is shown by default."""

    OFF = 0
    ADVICE = 1
    WARNING = 2
    ERROR = 3

    @property
    def label(self) -> str:
        return self.name.lower()


class Claim(str, Enum):
    """What a measured run (`trainlint verify`) can settle about a finding."""

    SYNC = "sync"  # host-device synchronisations per step, and their step time
    MEMORY = "memory"  # peak or growth
    LOADER = "loader"  # time that the step waits for data
    TIME = "time"  # step time
    BEHAVIOUR = "behaviour"  # seen, not timed: order, mode, gradients, a crash
    NONE = "-"


class Place(NamedTuple):
    """A range of the source. Rows and columns are 1-based; columns count characters; the end is exclusive.

    In a notebook, rows are those of the joined code cells; `source.Source.cell_place` maps them into their cell.
    """

    row: int
    column: int
    end_row: int
    end_column: int


class Related(NamedTuple):
    """A second place that explains a finding: the loop that makes it hot, the caller, the loader."""

    path: str
    place: Place
    message: str


class Edit(NamedTuple):
    """Replace the text at `place` by `content`."""

    place: Place
    content: str


class Fix(NamedTuple):
    safe: bool
    message: str
    edits: tuple[Edit, ...]
    instead: "Fix | None" = None  # what --unsafe-fixes does instead of this safe one


class Finding(NamedTuple):
    code: str
    name: str
    level: Level
    claim: Claim
    message: str
    why: str  # what it costs, one line
    help: str  # what to write instead, one line
    path: str
    place: Place
    related: tuple[Related, ...] = ()
    fix: Fix | None = None
    # first and last row of the statement (a compound statement: its header), and of a part of it that has a finding of its
    # own the last row: where comments silence it, new ones on the last of these
    anchor_rows: tuple[int, ...] = (0, 0)
    scope: str = ""  # qualified name of the enclosing function or class, "" at module level
    statement: str = ""  # text of the statement's first line, white space folded
    fingerprint: str = ""

    def sort_key(self) -> tuple[str, int, int, str]:
        return (self.path, self.place.row, self.place.column, self.code)
