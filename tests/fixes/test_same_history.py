"""A safe fix changes no number: the scripts of `fixtures/history/` learn the same before and after.

Each is run twice with the same seed, all of them in one process. What a fix only changes on CUDA still runs on the CPU.
What raised before (TL306, TL308) may be made to run.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fix_files import ROOT

from trainlint.discovery import discover
from trainlint.fixing import fix
from trainlint.settings import Configuration

pytestmark = pytest.mark.torch

SCRIPTS = Path(__file__).parents[2] / "fixtures" / "history"
RAISED = {"TL306", "TL308"}  # before the fix
CODES = sorted({path.parent.name for path in ROOT.glob("TL*/*.after.py")})

RUNNER = """
import json, runpy, sys, warnings
from pathlib import Path

warnings.simplefilter("ignore")
sys.argv = sys.argv[:1] + [a for a in sys.argv[1:] if not a.startswith("--")]
folder = Path(sys.argv.pop(1))
found = {}
for path in sorted(folder.glob("*/*.py")):
    try:
        history = runpy.run_path(str(path), run_name="__main__")["history"]
    except Exception as error:
        history = f"{type(error).__name__}: {error}"
    found[f"{path.parent.name}/{path.stem}"] = history
print("HISTORIES " + json.dumps(found))
"""


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the scripts as they are (`before`) and as `--fix` leaves them (`after`)."""
    pytest.importorskip("torch")
    root = tmp_path_factory.mktemp("history")
    for code in CODES:
        source = SCRIPTS / f"{code}.py"
        project = root / "fixed" / code
        project.mkdir(parents=True)
        (project / ".git").mkdir()
        select = "ALL" if code == "TL001" else code
        (project / "trainlint.toml").write_text(f'select = ["{select}"]\ntorch-version = "2.13"\n', encoding="utf-8")
        path = project / f"{code}.py"
        path.write_bytes(source.read_bytes())
        done = fix(
            discover([str(path)], Configuration()), unsafe=False, write=True, progress=lambda results, _: results
        )
        assert not done.dropped and not done.problems and not done.unsettled
        for name, data in (("before", source.read_bytes()), ("after", path.read_bytes())):
            (root / "run" / name).mkdir(parents=True, exist_ok=True)
            (root / "run" / name / f"{code}.py").write_bytes(data)
    return root / "run"


@pytest.fixture(scope="module")
def histories(texts: Path) -> dict[str, Any]:
    ran = subprocess.run(
        [sys.executable, "-c", RUNNER, str(texts)], capture_output=True, text=True, timeout=600, check=False
    )
    line = next((row for row in ran.stdout.splitlines() if row.startswith("HISTORIES ")), None)
    assert line is not None, ran.stderr
    found: dict[str, Any] = json.loads(line.removeprefix("HISTORIES "))
    return found


@pytest.mark.parametrize("code", CODES)
def test_the_fix_changes_the_script(code: str, texts: Path) -> None:
    assert (texts / "before" / f"{code}.py").read_bytes() != (texts / "after" / f"{code}.py").read_bytes()


@pytest.mark.parametrize("code", CODES)
def test_the_history_is_the_same(code: str, histories: dict[str, Any]) -> None:
    import torch

    before, after = histories[f"before/{code}"], histories[f"after/{code}"]
    assert isinstance(after, list) and len(after) > 2, after
    assert all(isinstance(value, float) and value == value for value in after)
    if code in RAISED:
        assert isinstance(before, str), "it should have raised"
    else:
        assert isinstance(before, list), before
        torch.testing.assert_close(torch.tensor(before), torch.tensor(after))
