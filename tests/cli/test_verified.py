"""`trainlint check --verified report.json`"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

SCRIPT = """\
import torch
from torch.utils.data import DataLoader

def train(model, loader, optimizer, device):
    for inputs, labels in loader:
        inputs = inputs.to("cuda")
        loss = model(inputs).mean()
        loss.backward()
        optimizer.step()
        print(loss.item())
        torch.cuda.empty_cache()
        torch.cuda.synchronize()
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "trainlint.toml").write_text("", encoding="utf-8")
    (tmp_path / "train.py").write_text(SCRIPT, encoding="utf-8")
    return tmp_path


def findings(command: Any, project: Path) -> list[dict[str, Any]]:
    done = command("check", "--output-format", "json", "--pedantic", cwd=project)
    return list(json.loads(done.stdout))


def report(project: Path, entries: list[dict[str, Any]], **more: Any) -> Path:
    """As `trainlint verify` writes it."""
    script = project / "train.py"
    content = {
        "schema": "trainlint-verify/1",
        "made_at": "2026-01-02T03:04:05+00:00",
        "files": {str(script): hashlib.sha256(script.read_bytes()).hexdigest()},
        "findings": entries,
        "not_run": [],
        **more,
    }
    path = project / "report.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def entry(finding: dict[str, Any], verdict: str, saving: float | None = None) -> dict[str, Any]:
    effect = None
    if saving is not None:
        effect = {"saving": saving, "interval": [saving - 0.02, saving + 0.02], "metric": "step_time"}
    return {
        "id": finding["fingerprint"],
        "code": finding["code"],
        "file": finding["filename"],
        "line": finding["location"]["row"],
        "verdict": verdict,
        "why": f"this is why it is {verdict}",
        "claim": {"kind": "time", "metric": "step_time"},
        "effect": effect,
    }


def codes(output: str) -> list[str]:
    return [line.split(": ")[1].split()[0] for line in output.splitlines() if line.startswith("train.py:")]


def by_code(command: Any, project: Path) -> dict[str, dict[str, Any]]:
    return {finding["code"]: finding for finding in findings(command, project)}


def test_costs_stand_beside_findings_and_sort_them(command: Any, project: Path) -> None:
    found = by_code(command, project)
    assert {"TL101", "TL104", "TL105"} <= set(found)
    entries = [
        entry(found["TL101"], "refuted", 0.001),
        entry(found["TL104"], "confirmed", 0.31),
        entry(found["TL105"], "confirmed", 0.08),
    ]
    report(project, entries)
    done = command("check", "--verified", "report.json", "--output-format", "concise", cwd=project)
    order = codes(done.stdout)
    assert order[:2] == ["TL104", "TL105"]
    assert order[-1] == "TL101"
    assert "[confirmed: 31 % of step time [29, 33]]" in done.stdout
    assert "[confirmed: 8.0 % of step time [6.0, 10]]" in done.stdout
    assert "changed" not in done.stdout
    text = command("check", "--verified", "report.json", cwd=project).stdout
    assert "= measured: confirmed: this is why it is confirmed" in text
    assert text.index("TL104") < text.index("TL105") < text.index("TL101")


def test_json_has_it_too(command: Any, project: Path) -> None:
    found = by_code(command, project)
    report(project, [entry(found["TL105"], "confirmed", 0.08)])
    done = command("check", "--verified", "report.json", "--output-format", "json", cwd=project)
    first, *others = json.loads(done.stdout)
    assert first["code"] == "TL105"
    assert first["verified"]["interval"] == pytest.approx([0.06, 0.10])
    assert first["verified"]["stale"] is False
    assert all(other["verified"] is None for other in others)
    plain = command("check", "--output-format", "json", cwd=project)
    assert "verified" not in json.loads(plain.stdout)[0]


def test_a_file_that_changed_is_said(command: Any, project: Path) -> None:
    report(project, [entry(by_code(command, project)["TL105"], "confirmed", 0.08)])
    (project / "train.py").write_text(f"# a line above\n{SCRIPT}", encoding="utf-8")
    done = command("check", "--verified", "report.json", "--output-format", "concise", cwd=project)
    assert "[confirmed: 8.0 % of step time [6.0, 10], before the file changed]" in done.stdout
    assert "report.json, measured 2026-01-02T03:04:05+00:00: train.py has changed since" in done.stdout


def test_a_finding_that_is_gone_is_said(command: Any, project: Path) -> None:
    report(project, [entry(by_code(command, project)["TL105"], "confirmed", 0.08)])
    (project / "train.py").write_text(SCRIPT.replace("        torch.cuda.empty_cache()\n", ""), encoding="utf-8")
    done = command("check", "--verified", "report.json", "--output-format", "concise", cwd=project)
    assert "1 measured finding of it is not there any more" in done.stdout
    assert "TL105" not in done.stdout


def test_confirmed_advice_is_shown(command: Any, project: Path) -> None:
    advice = [finding for finding in findings(command, project) if finding["level"] == "advice"]
    (project / "train.py").write_text(SCRIPT + "\n\nloader = DataLoader(object(), batch_size=4)\n", encoding="utf-8")
    advice = [finding for finding in findings(command, project) if finding["level"] == "advice"]
    assert advice, "the script has a finding of level advice"
    report(project, [entry(advice[0], "confirmed", 0.5)])
    plain = command("check", "--output-format", "concise", cwd=project)
    done = command("check", "--verified", "report.json", "--output-format", "concise", cwd=project)
    assert advice[0]["message"] not in plain.stdout
    assert done.stdout.splitlines()[0].endswith("[confirmed: 50 % of step time [48, 52]]")
    assert done.returncode == plain.returncode


def test_the_exit_code_and_the_findings_stay(command: Any, project: Path) -> None:
    report(project, [])
    plain = command("check", "--output-format", "concise", cwd=project)
    done = command("check", "--verified", "report.json", "--output-format", "concise", cwd=project)
    assert done.returncode == plain.returncode == 1
    assert codes(done.stdout) == codes(plain.stdout)
    assert "findings are not in report.json" in done.stdout


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot be read"),
        ("{", "is no JSON"),
        ("[]", "no report of trainlint verify"),
        ('{"schema": "trainlint-verify/7"}', "schema trainlint-verify/7"),
        ('{"schema": "trainlint-verify/1", "findings": [{"code": 1}]}', "is not as trainlint-verify/1 should be"),
    ],
)
def test_what_is_no_report_is_refused(command: Any, project: Path, content: str | None, said: str) -> None:
    if content is not None:
        (project / "report.json").write_text(content, encoding="utf-8")
    done = command("check", "--verified", "report.json", cwd=project)
    assert done.returncode == 2
    assert said in done.stderr


def test_counting_and_costs_contradict(command: Any, project: Path) -> None:
    done = command("check", "--verified", "report.json", "--statistics", cwd=project)
    assert done.returncode == 2
