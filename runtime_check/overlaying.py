"""A launch with other source text: what the probe serves in place of files, and the stub that stands in for the main
script, which Python itself reads before anything can be hooked.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from runtime_check.options import Options

_STUB = """\
from _trainlint_probe import overlay as _overlay

_overlay.run_main({path!r}, {shown!r}, globals())
"""


def write_overlay(texts: Mapping[str, str], run_dir: Path) -> dict[str, str]:
    """Path -> file that holds its text, for the probe's configuration."""
    files = {}
    for number, (path, text) in enumerate(texts.items()):
        file = run_dir / "overlay" / f"{number}.txt"
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(text.encode("utf-8"))
        files[path] = str(file)
    return files


def with_stub(texts: Mapping[str, str], run_dir: Path, options: Options) -> list[str]:
    """The user's command, with a stub of the same name where it names a script whose text is another."""
    command = options.command_line()
    script = options.script_path()
    if not texts or script is None or str(script.resolve()) not in {str(Path(path).resolve()) for path in texts}:
        return command
    stub = run_dir / "stub" / script.name
    stub.parent.mkdir(exist_ok=True)
    changed = []
    for word in command:
        if word.endswith(script.name) and (options.cwd / word).absolute() == script:
            stub.write_text(_STUB.format(path=str(script), shown=word), encoding="utf-8")
            changed.append(str(stub))
        else:
            changed.append(word)
    return changed
