"""What rules say depends on the versions of torch and Python, and on the platforms, that a project is for."""

from __future__ import annotations

from pathlib import Path

from trainlint.engine import check
from trainlint.settings import Configuration, Overrides

API = """\
import torch
from torch.distributed.pipeline.sync import Pipe
from torch.optim.lr_scheduler import StepLR


def main(optimizer, stages):
    scaler = torch.cuda.amp.GradScaler()
    schedule = StepLR(optimizer, 10, verbose=True)
    state = torch.load("weights.pt", map_location="cpu")
    return Pipe(stages), scaler, schedule, state
"""

LOADER = """\
import torch
from torch.utils.data import DataLoader, TensorDataset

rows = DataLoader(TensorDataset(torch.zeros(8, 2)), batch_size=2, num_workers=2, collate_fn=lambda items: items)
for row in rows:
    print(len(row))
"""


def _codes(folder: Path, **told: object) -> set[str]:
    overrides = Overrides(select=("ALL",), preview=True, **told)  # type: ignore[arg-type]
    return {f.code for r in check([str(folder)], Configuration(overrides)) for f in r.findings}


def test_the_version_of_torch(tmp_path: Path) -> None:
    (tmp_path / "api.py").write_text(API)
    old, new = _codes(tmp_path, torch_version="2.2"), _codes(tmp_path, torch_version="2.9")
    assert {"TL903"} <= old  # the argument is missing, and 2.2 loads pickles by default
    assert not {"TL409", "TL507"} & old  # nothing is deprecated or gone yet
    assert {"TL409", "TL507", "TL902"} <= new
    assert "TL903" not in new  # from 2.6 on the default is safe


def test_linux_with_fork(tmp_path: Path) -> None:
    (tmp_path / "rows.py").write_text(LOADER)
    assert {"TL301", "TL302"} <= _codes(tmp_path)
    (tmp_path / "trainlint.toml").write_text('target-platform = ["linux"]\npython-version = "3.12"\n')
    assert not {"TL301", "TL302"} & _codes(tmp_path)
    (tmp_path / "trainlint.toml").write_text('target-platform = ["linux"]\npython-version = "3.14"\n')
    assert {"TL301", "TL302"} <= _codes(tmp_path)
