"""What `--show-settings` and `--verbose` print."""

from __future__ import annotations

from collections.abc import Sequence

from trainlint.findings import Level
from trainlint.report.summary import count_of
from trainlint.result import FileResult
from trainlint.rules.registry import index
from trainlint.selection import select
from trainlint.settings import Settings


def settings_as_text(settings: Settings) -> str:
    """Raises SettingsError."""
    selection = select(settings, index())
    low, high = settings.torch_range
    rows = {
        "configuration file": settings.config or "none",
        "project": settings.project,
        "rules": ", ".join(sorted(selection.codes)) or "none",
        "shown as advice too": ", ".join(sorted(selection.shown_as_advice)) or "none",
        "preview": "on" if settings.preview else "off",
        "levels": ", ".join(f"{code} = {level.label}" for code, level in settings.levels) or "as in the rules",
        "per-file-ignores": "; ".join(f"{p}: {', '.join(codes)}" for p, codes in settings.per_file_ignores) or "none",
        "exclude": ", ".join(settings.exclude),
        "fail-on": settings.fail_on.label,
        "target-platform": ", ".join(settings.target_platform),
        "torch": f"{low[0]}.{low[1]} to {high[0]}.{high[1]} ({_torch_source(settings)})",
        "python": f"{settings.python[0]}.{settings.python[1]}",
        "hot-functions": ", ".join(settings.hot_functions) or "none",
        "loader-names": ", ".join(settings.loader_names) or "none",
    }
    width = max(len(name) for name in rows)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in rows.items())


def run_as_text(results: Sequence[FileResult]) -> str:
    """What was looked at, for `--verbose`."""
    lines = []
    for settings in {id(result.settings): result.settings for result in results}.values():
        config = settings.config or "defaults, no configuration file"
        lines.append(f"settings of {settings.project}: {config}; torch: {_torch_source(settings)}")
    suppressed = sum(len(result.suppressed) for result in results)
    findings = sum(len(result.findings) for result in results)
    errors = sum(finding.level is Level.ERROR for result in results for finding in result.findings)
    found = f"{count_of(findings, 'finding')}, {count_of(errors, 'error')} among them"
    lines.append(f"{count_of(len(results), 'file')}; {found}; {suppressed} suppressed by comments")
    return "\n".join(lines)


def _torch_source(settings: Settings) -> str:
    if settings.torch_version is not None:
        return f"torch-version {settings.torch_version}"
    from trainlint.versions import project_range

    return project_range(settings.project)[1]
