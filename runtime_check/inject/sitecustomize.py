"""First on PYTHONPATH during `trainlint verify`: runs in every Python process that the user's command starts.

That reaches `python train.py`, the ranks of torchrun, `mp.spawn` children and framework launchers alike. This folder
holds nothing else on purpose: whatever lay beside this file would shadow a module of the user's.
"""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _run_the_environments_own() -> None:
    """The environment may have a sitecustomize of its own (Debian, conda, tracers): it still has to run."""
    import importlib.machinery
    import importlib.util

    elsewhere = [entry for entry in sys.path if os.path.abspath(entry or os.getcwd()) != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", elsewhere)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


def _start_probe(config: str) -> None:
    import importlib.util

    root = os.path.join(os.path.dirname(_HERE), "probe")
    spec = importlib.util.spec_from_file_location(
        "_trainlint_probe", os.path.join(root, "__init__.py"), submodule_search_locations=[root]
    )
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["_trainlint_probe"] = module
    spec.loader.exec_module(module)
    module.start(config)


try:
    _run_the_environments_own()
except Exception:  # as Python itself does: an error in a sitecustomize never stops the program
    if os.environ.get("PYTHONVERBOSE"):
        raise

if os.environ.get("TRAINLINT_PROBE"):
    try:
        _start_probe(os.environ["TRAINLINT_PROBE"])
    except Exception:
        import traceback

        _folder = os.path.dirname(os.environ["TRAINLINT_PROBE"])
        if os.path.isdir(_folder):  # a stale variable, inherited by something that outlived the run, is no error
            with open(os.path.join(_folder, f"probe-error-{os.getpid()}.txt"), "a") as _file:
                traceback.print_exc(file=_file)
