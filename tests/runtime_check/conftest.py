"""Which tests run where, and the fixtures that they share."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from verify_runs import ROOT, Launcher

HAS_TORCH = importlib.util.find_spec("torch") is not None


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: takes minutes; run with -m slow")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    asked_for_slow = "slow" in (config.option.markexpr or "") or os.environ.get("TRAINLINT_SLOW_TESTS")
    here = Path(__file__).parent
    for item in items:
        if here not in item.path.parents:
            continue
        if item.get_closest_marker("slow") and not asked_for_slow:
            item.add_marker(pytest.mark.skip(reason="takes minutes: run with -m slow"))
        if item.get_closest_marker("torch") and not HAS_TORCH:
            item.add_marker(pytest.mark.skip(reason="torch is not installed"))
        if item.get_closest_marker("gpu") and not _has_cuda():
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))


def _has_cuda() -> bool:
    if not HAS_TORCH:
        return False
    import torch

    return bool(torch.cuda.is_available())


@pytest.fixture(scope="session")
def launch(tmp_path_factory: pytest.TempPathFactory) -> Launcher:
    return Launcher(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="session")
def probe_module() -> Any:
    """Load a module of the probe as the launch does: by path, under its private name, without starting it."""
    root = ROOT / "runtime_check" / "probe"
    spec = importlib.util.spec_from_file_location(
        "_trainlint_probe", root / "__init__.py", submodule_search_locations=[str(root)]
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["_trainlint_probe"] = module
    spec.loader.exec_module(module)
    return lambda name: importlib.import_module(f"_trainlint_probe.{name}")
