"""Every claim that a rule makes has an experiment or a reason, and every experiment exists."""

from __future__ import annotations

import subprocess
import sys

import pytest
from verify_runs import ROOT

from runtime_check.claims import EXPERIMENTS, REASONS, reason_not_run
from runtime_check.experiments import EXPERIMENTS as FUNCTIONS
from trainlint.findings import Claim
from trainlint.rules.registry import index

#: Codes of the catalogue whose claim is sync, time, memory, loader or behaviour.
CLAIMING = """
TL101 TL102 TL103 TL104 TL105 TL106 TL107 TL108 TL109 TL111
TL201 TL202 TL203 TL205 TL206 TL207 TL208 TL209 TL210 TL211
TL301 TL302 TL303 TL304 TL305 TL306 TL307 TL308 TL309 TL310 TL312 TL313 TL314 TL315 TL316 TL317 TL318 TL319 TL322
TL401 TL402 TL403 TL410
TL501 TL502 TL503 TL505 TL512
TL601 TL602 TL604 TL605 TL607 TL608 TL611 TL612 TL614 TL617 TL618 TL620
TL701 TL702 TL703 TL704 TL705 TL706 TL708
TL901 TL904
""".split()


@pytest.mark.parametrize("code", CLAIMING)
def test_each_claim_has_an_experiment_or_a_reason(code: str) -> None:
    assert (code in EXPERIMENTS) != (code in REASONS)


def test_no_table_names_what_claims_nothing() -> None:
    assert set(EXPERIMENTS) | set(REASONS) == set(CLAIMING)


def test_the_linter_s_own_index_agrees() -> None:
    claiming = {entry.code for entry in index().values() if entry.claim is not Claim.NONE}
    assert claiming <= set(EXPERIMENTS) | set(REASONS)


def test_each_named_experiment_exists_and_is_used() -> None:
    assert set(EXPERIMENTS.values()) == set(FUNCTIONS)


def test_a_rule_that_claims_nothing_says_so() -> None:
    assert "static only" in reason_not_run("TL110")


def test_the_parent_needs_neither_torch_nor_trainlint() -> None:
    code = (
        "import sys, runtime_check.commandline, runtime_check.report.terminal, runtime_check.report.markdown;"
        "print([name for name in ('torch', 'trainlint', 'numpy', 'rich', 'psutil') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_inject_folder_holds_nothing_that_could_shadow_a_module() -> None:
    names = {path.name for path in (ROOT / "runtime_check" / "inject").iterdir() if path.name != "__pycache__"}
    assert names == {"sitecustomize.py"}
