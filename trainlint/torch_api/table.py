"""The table of names: what each release of torch and torchvision offers.

`names.txt` and `parameters.txt` are read when somebody asks, and parsed as far as the question goes. Their format is
described in `trainlint.torch_api.extraction.encode`, which writes them.
"""

# No `from __future__ import annotations` here: NamedTuple would compile each annotation of each field at every start.

from functools import cache

from trainlint.records import NamedTuple
from trainlint.torch_api.files import text_of
from trainlint.torch_api.versions import OLDEST_TARGET, Version, version

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_KINDS = {"+": "class", "/": "module", "=": "value", "!": "external"}
_ROOTS = ("torch", "torchvision", "functorch")
# Devices that other packages add to torch, with modules and methods named after them: `torch.npu`, `Tensor.hpu`. See
# https://docs.pytorch.org/docs/stable/generated/torch.utils.rename_privateuse1_backend.html
_PLUG_INS = frozenset(
    "dml gcu hpu ipex ipu maca maia mlu musa neuron npu ort ppu privateuseone rbln sdaa spyre".split()
)

_Span = tuple[int, int]


class Availability(NamedTuple):
    """The first and last release that has a name, of those looked at; both None if none has it."""

    first: Version | None
    last: Version | None
    inside: bool | None = True  # what is so from `first` to `last`; None: cannot be told
    outside: bool | None = False  # what is so before and after
    kind: str = ""  # "module", "class", "function", "value", "external" (another library's), or "" where not known

    @property
    def open(self) -> bool:
        """The table cannot tell everything: the name may exist where it is not listed."""
        return self.inside is None or self.outside is None

    def at(self, number: Version) -> bool | None:
        """Whether the name exists in that release; None if the table cannot tell.

        A release newer than those looked at is answered like the newest of them; see `is_known`.
        """
        if self.first is None or self.last is None:
            # Only two releases before 2.0 were looked at: what none of them has may have been between them.
            return None if number < OLDEST_TARGET else self.outside
        last = self.last if self.last < releases()[-1] else max(self.last, number)
        if self.first <= number <= last:
            return self.inside
        # The stub files of 1.7 leave out some functions: `first` is where a name was seen, not where it came.
        if number < self.first and number < OLDEST_TARGET:
            return None
        return None if last < number < _next(last) else self.outside


def _next(number: Version) -> Version:
    return min(release for release in releases() if release > number)


class _Entry(NamedTuple):
    kind: str
    origin: str
    span: _Span


class _Table:
    """The lines of `names.txt` by the name they start with, and what was parsed of them."""

    def __init__(self, text: str) -> None:
        self.lines: dict[str, str] = {}
        self.releases: dict[str, list[str]] = {}
        self.unsure: dict[str, frozenset[str]] = {}
        for line in text.splitlines():
            if line.startswith("#"):
                continue
            name, _, rest = line.partition(" ")
            if name == "@releases":
                project, *numbers = rest.split()
                self.releases[project] = numbers
            elif name == "@unsure":
                project, *leaves = rest.split()
                self.unsure[project] = frozenset(leaves)
            else:
                self.lines[name] = rest
        self._members: dict[str, dict[str, _Entry]] = {}

    def span(self, owner: str) -> _Span:
        return _span(self.lines[owner][1:3])

    def is_class(self, owner: str) -> bool:
        return self.lines[owner].startswith("c")

    def is_open(self, owner: str) -> bool:
        return self.lines[owner][3:4] == "*"

    def may_import(self, module: str, leaf: str) -> bool:
        """Whether a plain module may have `leaf` from another library (`math`, `Any`): only packages list these."""
        project = "torchvision" if module.startswith("torchvision") else "torch"
        is_package = "/" in self.lines[module].partition("@")[0]
        return not is_package and leaf in self.unsure[project]

    def bases(self, owner: str) -> list[str]:
        words = self.lines[owner].split(" ", 2)
        return [] if words[1] == "-" else words[1].split(",")

    def members(self, owner: str) -> dict[str, _Entry]:
        """The names listed on the line of a module or class."""
        known = self._members.get(owner)
        if known is None:
            is_class = self.is_class(owner)
            words = self.lines[owner].split()[2 if is_class else 1 :]
            known = self._members[owner] = _parse(words, owner, self.span(owner), is_class)
        return known


def _parse(words: list[str], owner: str, span: _Span, is_class: bool) -> dict[str, _Entry]:
    members: dict[str, _Entry] = {}
    origin = owner
    for word in words:
        if word[0] == "@":
            origin = word[1:].strip(".")
            continue
        kind = _KINDS.get(word[0], "")
        if kind:
            word = word[1:]
        elif not is_class:
            kind = "function"
        word, _, own = word.partition("~")
        name, _, leaf = word.partition(">")
        full = f"{origin}.{leaf or name}" if origin else leaf or name
        members[name] = _Entry(kind, full, _span(own) if own else span)
    return members


def _span(digits: str) -> _Span:
    return _DIGITS.index(digits[0]), _DIGITS.index(digits[1])


@cache
def _table() -> _Table:
    return _Table(text_of("names.txt"))


@cache
def releases() -> tuple[Version, ...]:
    """The minor releases of torch that were looked at, oldest first."""
    return tuple(version(number) for number in _table().releases["torch"])


@cache
def release_names(project: str = "torch") -> tuple[str, ...]:
    """The exact releases that were looked at: `("1.7.1", ..., "2.13.0")`; torchvision's stand beside their torch's."""
    return tuple(_table().releases[project])


def is_known(number: Version) -> bool:
    """Whether the release lies within those looked at: a name that the table lacks is then certain to be missing."""
    return releases()[0] <= number <= releases()[-1]


class _Found(NamedTuple):
    origin: str  # the full name under which it is defined, as far as it could be followed
    kind: str
    span: _Span | None
    open: bool


@cache
def _find(full_name: str) -> _Found:
    table = _table()
    root, *leaves = full_name.split(".")
    if root not in _ROOTS or root not in table.lines:
        return _Found(full_name, "", None, True)
    here = _Found(root, "module", table.span(root), False)
    for depth, leaf in enumerate(leaves, 1):
        if here.span is None:
            return here
        below = _step(table, here, leaf)
        if below.open:
            kind = below.kind if depth == len(leaves) else ""
            return _Found(".".join([below.origin, *leaves[depth:]]), kind, below.span, True)
        here = below
    return here


def _step(table: _Table, owner: _Found, leaf: str) -> _Found:
    """`leaf` looked up in a module, a class or anything else."""
    origin = f"{owner.origin}.{leaf}"
    unknown = _Found(origin, "", owner.span, True)
    if owner.origin not in table.lines or owner.kind not in ("module", "class"):
        return unknown
    look_in = _inherited if owner.kind == "class" else _listed
    entry = look_in(table, owner.origin, leaf)
    if isinstance(entry, bool):
        if entry or leaf.startswith("_") or leaf in _PLUG_INS:
            return unknown
        if owner.kind == "module" and table.may_import(owner.origin, leaf):
            return unknown
        return _Found(origin, "", None, False)
    assert owner.span is not None
    first, last = max(owner.span[0], entry.span[0]), min(owner.span[1], entry.span[1])
    if first > last:  # an alias of something that had gone: seen at both ends, never together
        return unknown
    return _Found(entry.origin, entry.kind, (first, last), False)


def _listed(table: _Table, module: str, leaf: str) -> _Entry | bool:
    """The entry of a module, or whether it may have names that are not listed."""
    entry = table.members(module).get(leaf)
    return entry if entry is not None else table.is_open(module)


def _inherited(table: _Table, owner: str, leaf: str, seen: frozenset[str] = frozenset()) -> _Entry | bool:
    """The member of a class or of its bases, or whether one of them may have members that are not listed."""
    entry = table.members(owner).get(leaf)
    is_open = table.is_open(owner)
    for base in table.bases(owner):
        if base in seen:  # no class is its own base, but two releases can be mixed up that far
            continue
        if base not in table.lines:
            is_open = True
            continue
        found = _inherited(table, base, leaf, seen | {owner})
        if isinstance(found, bool):
            is_open = is_open or found
        elif entry is None:
            entry = found
        else:
            # What a class overrides now, it inherited before: `Tensor.symeig` moved from the extension to Python.
            entry = entry._replace(span=(min(entry.span[0], found.span[0]), max(entry.span[1], found.span[1])))
    if entry is None or (is_open and entry.span[1] < len(table.releases["torch"]) - 1):
        # A base that is not listed completely may have what the class itself lost: `Shard.dim` went to the extension.
        return is_open
    return entry


def lookup(full_name: str) -> Availability:
    """In which releases `torch.optim.Adam`, `torch.Tensor.symeig` or `torchvision.transforms.Scale` exists.

    Versions are those of torch; a name of torchvision is given the torch release that its torchvision belongs to. Names
    of other libraries, names that begin with an underscore and are not listed, and what lies behind a value
    (`torch.ops.aten`) are open.
    """
    found = _find(full_name)
    inside = None if found.open else True
    if found.span is None:
        return Availability(None, None, inside, None if found.open else False, found.kind)
    numbers = releases()
    return Availability(numbers[found.span[0]], numbers[found.span[1]], inside, False, found.kind)


def canonical(full_name: str) -> str:
    """The full name under which it is defined, in the newest release that has it.

    `torch.optim.adam.Adam` for `torch.optim.Adam`, `torch.optim.lr_scheduler.LRScheduler.step` for `StepLR.step`.
    """
    return _find(full_name).origin


@cache
def _parameter_lines() -> dict[str, str]:
    lines = text_of("parameters.txt").splitlines()
    return {name: rest for name, _, rest in (line.partition(" ") for line in lines if not line.startswith("#"))}


class Parameters(NamedTuple):
    """What a function, or the constructor of a class, takes in some release."""

    positional: tuple[str, ...]
    keyword_only: tuple[str, ...]
    more_positional: bool  # has `*args`
    more_keywords: bool  # has `**kwargs`

    def position(self, keyword: str) -> int | None:
        """Where a parameter stands when it is passed without its name."""
        return self.positional.index(keyword) if keyword in self.positional else None


def _parameters_of(words: str) -> Parameters:
    names = words.split()
    more_keywords = bool(names) and names[-1] == "**"
    if more_keywords:
        names.pop()
    more_positional = "*args" in names
    split = names.index("*args") if more_positional else names.index("*") if "*" in names else len(names)
    return Parameters(tuple(names[:split]), tuple(names[split + 1 :]), more_positional, more_keywords)


def parameters(full_name: str, number: Version) -> Parameters | None:
    """What a callable takes in that release, or None if that is not known."""
    digit = _digit(number)
    for run in _parameter_lines().get(canonical(full_name), "").split("|"):
        span, _, words = run.partition(":")
        if span and span[0] <= digit <= span[1]:
            return _parameters_of(words)
    return None


def _digit(number: Version) -> str:
    older = [index for index, release in enumerate(releases()) if release <= number]
    return _DIGITS[older[-1] if older else 0]


def keyword(full_name: str, name: str) -> Availability:
    """In which releases a callable takes the keyword `name`. Open where its parameters are not known."""
    first = last = None
    outside: bool | None = False
    line = _parameter_lines().get(canonical(full_name), "")
    if not line:
        return Availability(None, None, None, None)
    for run in line.split("|"):
        span, _, words = run.partition(":")
        taken = _parameters_of(words)
        if name in taken.positional or name in taken.keyword_only:
            low, high = _span(span)
            first = releases()[low] if first is None else first
            last = releases()[high]
        elif taken.more_keywords:
            outside = None
    return Availability(first, last, True, outside)
