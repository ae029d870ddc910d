"""What earlier checks found, so that what has not changed is not checked again.

It lies in `.trainlint_cache/` of the project: one JSON file for each combination of settings. An entry holds for a file
as long as neither its own content has changed nor that of any file that hangs together with it (by imports in either
direction, or by lying in the same folder): what a caller does can make a function hot, and so what is said of it. Damage,
a disk that cannot be written and two runs at once cost time, never a wrong answer.
"""

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from trainlint import __version__
from trainlint.cache_entries import restored, stored
from trainlint.discovery import Target
from trainlint.hashing import blake2b
from trainlint.records import NamedTuple
from trainlint.result import FileResult
from trainlint.settings import Settings

FOLDER = ".trainlint_cache"
TAG = "Signature: 8a477f597d28d172789f06886806bc55\n# This folder is a cache of trainlint; it may be deleted at any time.\n"
_FORMAT = 1
_MOST_SETTINGS = 8  # files that are kept, one for each combination of settings
_RACY = 2_000_000_000  # ns; a file that was changed so shortly before it was read may have changed again unseen
_MARKERS = ("pyproject.toml", "trainlint.toml", "setup.py", ".git")
_REQUIREMENTS = ("pyproject.toml", "setup.cfg", "setup.py", "environment.yml", "environment.yaml")

# What is asked for the files that are not known. The second argument: what was read of projects (by their folder) on the
# way, a `semantic.neighbours.Neighbours` each.
Check = Callable[[list[Target], dict[str, Any]], Iterable[FileResult]]
Note = Callable[[str], None]


class FileState(NamedTuple):
    modified: int  # ns; 0: look at the content again
    size: int
    content: str  # digest
    group: str  # digest of all that hangs together with it


def check_with_cache(targets: list[Target], check: Check, note: Note | None = None) -> Iterator[FileResult]:
    """The results in the order of the targets. `check` is asked for those that are not known; `note` is told of trouble."""
    stores: dict[int, Store | None] = {}
    answers: dict[int, FileResult] = {}
    for number, target in enumerate(targets):
        store = _store_for(target, stores, note)
        known = store.known(target) if store is not None else None
        if known is not None:
            answers[number] = known
    left = [target for number, target in enumerate(targets) if number not in answers]
    fresh = iter(check(left, _read_on_the_way(stores.values())))
    try:
        for number, target in enumerate(targets):
            if number in answers:
                yield answers.pop(number)
                continue
            result = next(fresh)
            store = stores.get(id(target.settings))
            if store is not None:
                store.learn(result)
            yield result
    finally:
        for store in stores.values():
            if store is not None:
                store.save()


def _read_on_the_way(stores: Iterable["Store | None"]) -> dict[str, Any]:
    found = {store.root: store.take_neighbours() for store in stores if store is not None}
    return {root: neighbours for root, neighbours in found.items() if neighbours is not None}


def _store_for(target: Target, stores: dict[int, "Store | None"], note: Note | None) -> "Store | None":
    settings = target.settings
    if id(settings) not in stores:
        project = settings.project
        is_project = project == os.getcwd() or any(os.path.exists(os.path.join(project, name)) for name in _MARKERS)
        stores[id(settings)] = Store(settings, note) if is_project else None
    return stores[id(settings)]


class Store:
    """What is remembered of one project under one combination of settings."""

    def __init__(self, settings: Settings, note: Note | None = None) -> None:
        self.settings = settings
        self.root = settings.project
        self._prefix = self.root.rstrip(os.sep) + os.sep
        self.note = note or (lambda text: None)
        self.path = os.path.join(self.root, FOLDER, _digest(_identity(settings)) + ".json")
        self._changed = False
        self._neighbours: Any = None
        held = self._load()
        self._results: dict[str, Any] = held.get("results", {})
        self._states = self._current({path: FileState(*state) for path, state in held.get("files", {}).items()})

    # -------------------------------------------------------------------------------------------------- asking

    def known(self, target: Target) -> FileResult | None:
        """What was said of a file, if that still holds."""
        if target.data is not None or target.problem is not None:
            return None
        name = self._name(target.path)
        entry = self._results.get(name)
        state = self._states.get(name)
        if entry is None or state is None or entry[0] != state.group:
            return None
        try:
            return restored(target, self.root, entry[1])
        except (OSError, ValueError, TypeError, KeyError, IndexError):
            return None  # damaged, or the file has gone meanwhile

    def take_neighbours(self) -> Any:
        """What was read of the project's files to see how they hang together, None where nothing was; to be asked once."""
        neighbours, self._neighbours = self._neighbours, None
        return neighbours

    def learn(self, result: FileResult) -> None:
        name = self._name(result.path)
        state = self._states.get(name)
        entry = stored(result, self.root) if state is not None else None
        if state is not None and entry is not None:
            self._results[name] = [state.group, entry]
            self._changed = True
        elif self._results.pop(name, None) is not None:
            self._changed = True

    def _name(self, path: str) -> str:
        return path[len(self._prefix) :] if path.startswith(self._prefix) else path

    # ------------------------------------------------------------------------------------------------- states

    def _current(self, held: dict[str, FileState]) -> dict[str, FileState]:
        """The files of the project as they are now. Those that look the same are not read."""
        from trainlint.semantic.locating import Locator

        locator = Locator(self.root)
        now = time.time_ns()
        seen: dict[str, tuple[int, int]] = {}
        for path in locator.files():
            try:
                status = os.stat(path)
            except OSError:
                continue
            seen[self._name(path)] = (status.st_mtime_ns, status.st_size)
        if len(seen) == len(held) and all(
            name in held and held[name].modified == modified and held[name].size == size
            for name, (modified, size) in seen.items()
        ):
            return held
        self._changed = True
        from trainlint.semantic.neighbours import Neighbours

        neighbours = self._neighbours = Neighbours(locator)
        contents = {name: self._content(name, held.get(name), *state) for name, state in seen.items()}
        if contents.keys() == held.keys() and all(held[name].content == content for name, content in contents.items()):
            groups = {name: state.group for name, state in held.items()}
        else:
            groups = self._groups(neighbours, contents)
        return {
            name: FileState(0 if modified > now - _RACY else modified, size, contents[name], groups[name])
            for name, (modified, size) in seen.items()
        }

    def _content(self, name: str, held: FileState | None, modified: int, size: int) -> str:
        if held is not None and held.modified == modified and held.size == size:
            return held.content
        try:
            path = os.path.join(self.root, name)
            with open(path, "rb") as file:
                data = file.read()
        except OSError:
            return ""
        self._neighbours.offer(path, data)
        return _digest(data)

    def _groups(self, neighbours: Any, contents: dict[str, str]) -> dict[str, str]:
        """For each file the digest of all that hangs together with it."""
        from trainlint.semantic.neighbours import connected_files

        first_in: dict[str, str] = {}

        def linked(path: str) -> Iterator[str]:
            yield first_in.setdefault(os.path.dirname(path), path)
            yield from neighbours.raw_imports(path)

        digests: dict[int, str] = {}
        found: dict[str, str] = {}
        for path, group in connected_files(neighbours.locator.files(), linked).items():
            if id(group) not in digests:
                names = sorted(map(self._name, group))
                digests[id(group)] = _digest(repr([(name, contents.get(name, "")) for name in names]).encode())
            found[self._name(path)] = digests[id(group)]
        return {name: found.get(name, "") for name in contents}

    # --------------------------------------------------------------------------------------------------- disk

    def _load(self) -> dict[str, Any]:
        try:
            with open(self.path, encoding="utf-8") as file:
                held = json.load(file)
            if held["format"] == _FORMAT and isinstance(held["files"], dict) and isinstance(held["results"], dict):
                return held  # type: ignore[no-any-return]
            self.note(f"{self.path}: of another version; it is made anew")
        except FileNotFoundError:
            pass
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            self.note(f"{self.path}: cannot be used ({error}); it is made anew")
        return {}

    def save(self) -> None:
        """Puts the whole file in place in one step; of two runs at once the later one is kept."""
        if not self._changed:
            return
        self._changed = False
        results = {name: entry for name, entry in self._results.items() if name in self._states}
        text = json.dumps({"format": _FORMAT, "files": self._states, "results": results}, separators=(",", ":"))
        folder = os.path.dirname(self.path)
        temporary = f"{self.path}.{os.getpid()}.tmp"
        try:
            _prepare(folder)
            with open(temporary, "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(temporary, self.path)
            _prune(folder, self.path)
        except OSError as error:
            self.note(f"{folder}: nothing can be remembered here ({error.strerror or error})")
            if os.path.exists(temporary):
                os.unlink(temporary)


def _identity(settings: Settings) -> bytes:
    """All that a result depends on besides the files: the settings, the rules, the Python that reads, what the project
    requires."""
    import sys

    plain = settings._replace(root="", project="", config=None)
    where = (
        os.path.relpath(settings.root, settings.project)
        if settings.root.startswith(settings.project)
        else settings.root
    )
    return repr(
        (_FORMAT, __version__, _rules(), sys.version_info[:2], plain, where, _requires(settings.project))
    ).encode()


def _rules() -> list[tuple[str, int, int]]:
    """What the rules are: the version says it of a release, the files of a checkout."""
    here = os.path.dirname(os.path.abspath(__file__))
    if not os.path.exists(os.path.join(os.path.dirname(here), ".git")):
        return []
    found = []
    for folder, folders, files in os.walk(here):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in sorted(files):
            status = os.stat(os.path.join(folder, name))
            found.append((name, status.st_mtime_ns, status.st_size))
    return found


def _requires(project: str) -> list[tuple[str, str]]:
    """The files from which the range of torch versions is read, by content."""
    try:
        names = sorted(os.listdir(project))
    except OSError:
        return []
    found = []
    for name in names:
        if name in _REQUIREMENTS or (name.startswith("requirements") and name.endswith(".txt")):
            try:
                with open(os.path.join(project, name), "rb") as file:
                    found.append((name, _digest(file.read())))
            except OSError:
                continue
    return found


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=12).hexdigest()


def _prepare(folder: str) -> None:
    if os.path.exists(os.path.join(folder, "CACHEDIR.TAG")):
        return
    os.makedirs(folder, exist_ok=True)
    for name, text in ((".gitignore", "# made by trainlint\n*\n"), ("CACHEDIR.TAG", TAG)):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(text)


def _prune(folder: str, newest: str) -> None:
    """Keeps the files of the settings that were used last."""
    files = [entry for entry in os.scandir(folder) if entry.name.endswith(".json") and entry.path != newest]
    for entry in sorted(files, key=lambda e: e.stat().st_mtime_ns, reverse=True)[_MOST_SETTINGS - 1 :]:
        os.unlink(entry.path)


def clean(project: str) -> bool:
    """Deletes the cache of a project. False where there is none. Raises OSError."""
    folder = os.path.join(project, FOLDER)
    if not os.path.isfile(os.path.join(folder, "CACHEDIR.TAG")) or os.path.islink(folder):
        return False
    import shutil

    shutil.rmtree(folder)
    return True
