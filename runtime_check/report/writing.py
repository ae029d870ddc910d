"""Which report goes where."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runtime_check.against import said
from runtime_check.report import what_if_rows
from runtime_check.verify import Report


@dataclass(frozen=True)
class Wanted:
    """What is to come of a run: reports, and what makes it fail."""

    output_format: str = "text"
    output_file: str | None = None
    html: str | None = None
    baseline: dict[str, Any] | None = None
    baseline_name: str = ""
    fail_on: tuple[str, ...] = ()


def write(report: Report, wanted: Wanted) -> None:
    if wanted.html is not None:
        _write_page(_object(report), wanted.html)
    if wanted.output_format == "text" and wanted.output_file is None:
        from runtime_check.report import terminal

        terminal.print_report(report)
        return
    _put(_text(report, wanted.output_format), wanted.output_file)
    if report.failure is not None:
        sys.stderr.write(f"verify: {report.failure}\n")


def write_stored(stored: dict[str, Any], wanted: Wanted) -> None:
    """A report that was kept as JSON."""
    if wanted.html is not None:
        _write_page(stored, wanted.html)
    if wanted.output_format == "html":
        from runtime_check.report.html import to_html

        _put(to_html(stored), wanted.output_file)
    elif wanted.output_format == "json":
        _put(json.dumps(stored, indent=2) + "\n", wanted.output_file)
    else:
        _put("".join(line + "\n" for line in _lines(stored)), wanted.output_file)


def _text(report: Report, output_format: str) -> str:
    if output_format == "json":
        from runtime_check.report.as_json import to_json

        return to_json(report)
    if output_format == "markdown":
        from runtime_check.report.markdown import to_markdown

        return to_markdown(report)
    if output_format == "html":
        from runtime_check.report.html import to_html

        return to_html(_object(report))
    from runtime_check.report import terminal

    return "".join(line + "\n" for line, _ in terminal.lines(report))


def _object(report: Report) -> dict[str, Any]:
    from runtime_check.report.as_json import to_object

    return to_object(report)


def _lines(stored: dict[str, Any]) -> list[str]:
    """In short: the verdicts, candidates, and what has become worse."""
    base = str(stored.get("cwd", "")) + "/"
    lines = [f"{stored.get('script')}, measured {stored.get('made_at')}"]
    for finding in stored.get("findings", ()):
        place = f"{str(finding['file']).removeprefix(base)}:{finding['line']}"
        lines.append(f"{finding['code']}  {place}  {finding['verdict'].upper()}  {finding['why']}")
    candidates = (stored.get("what_if") or {}).get("candidates", ())
    lines += ["what if, most gain first:"] if candidates else []
    for made in candidates:
        lines.append(f"  {made['text']}")
        places = made["edits"] if made["measured"] else ()
        lines += [f"      {edit['file'].removeprefix(base)}:{edit['line']}: {edit['instead']}" for edit in places]
    searched = what_if_rows.search(stored)
    lines += [f"{searched['answer']}; {searched['kept']}"] if searched else []
    predicted = what_if_rows.prediction(stored)
    for row in predicted["rows"] if predicted else ():
        ratio = f"x{row['ratio']:.2f}, " if row["ratio"] is not None else ""
        fits = f", {row['fits']} {predicted['card']}" if predicted and predicted["card"] else ""
        lines.append(f"predicted, {row['title']}: {ratio}estimate {row['estimate']}{fits}")
    earlier = stored.get("against")
    if earlier:
        lines.append(f"{said(earlier)} {earlier['source']}")
        lines += [f"  {metric['name']}: {metric['verdict']}: {metric['why']}" for metric in earlier["metrics"]]
        lines += [
            f"  {finding['code']} {finding['place']}: newly confirmed, was {finding['was'].replace('_', ' ')}"
            for finding in earlier["newly_confirmed"]
        ]
    return lines


def _write_page(stored: dict[str, Any], path: str) -> None:
    from runtime_check.report.html import to_html

    _put(to_html(stored), path)


def _put(text: str, path: str | None) -> None:
    if path is None:
        sys.stdout.write(text)
    else:
        Path(path).write_text(text, encoding="utf-8")
