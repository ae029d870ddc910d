"""The .gitignore files that hold for a folder, innermost first. Imported only where there is one."""

from __future__ import annotations

import os

from pathspec import GitIgnoreSpec


class GitIgnore:
    """One .gitignore and those above it. Of two files that name a path, the deeper one decides."""

    def __init__(self, folder: str, spec: GitIgnoreSpec, above: GitIgnore | None) -> None:
        self._folder = folder
        self._spec = spec
        self._above = above

    @classmethod
    def read(cls, folder: str, above: GitIgnore | None) -> GitIgnore | None:
        """A file that cannot be read or holds a malformed pattern ignores nothing."""
        try:
            with open(os.path.join(folder, ".gitignore"), encoding="utf-8", errors="surrogateescape") as file:
                return cls(folder, GitIgnoreSpec.from_lines(file.read().splitlines()), above)
        except (OSError, ValueError):
            return above

    def ignores(self, path: str, is_folder: bool) -> bool:
        relative = os.path.relpath(path, self._folder).replace(os.sep, "/")
        verdict = self._spec.check_file(relative + "/" if is_folder else relative).include
        if verdict is not None:
            return verdict
        return self._above is not None and self._above.ignores(path, is_folder)
