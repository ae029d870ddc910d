"""The probe: what runs inside the user's process.

Standard library only until the user's own code imports torch, torch after that. It is loaded by path under the
private name `_trainlint_probe`, because trainlint may live in another environment than the script's.

A pass names the instruments it wants in its configuration; the clock, the loader's wait and the guards are always
there, and in the timing pass nothing else is.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import threading
import time
import traceback
from typing import Any

CONFIG: dict[str, Any] = {}
STARTED_NS = time.perf_counter_ns()
_raw_open = open  # before the guards wrap it: the probe's own files are never redirected


MODES: list[Any] = []  # dispatch modes that were entered for the life of the process


class _State:
    """`active`: this process may count steps and write a result. Forked children (loader workers) may not."""

    active = False
    torch: Any = None


STATE = _State()


def start(config_path: str) -> None:
    """Called by `sitecustomize` in every Python process of the launch."""
    with _raw_open(config_path, encoding="utf-8") as file:
        CONFIG.update(json.load(file))
    if not os.path.isdir(CONFIG["run_dir"]):
        return
    say_hello("hello")
    STATE.active = True
    sys.dont_write_bytecode = True  # a .pyc of the user's is a file that was there
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_in_forked_child)
    from _trainlint_probe import guards, imports, lifeline, loggers, script_end, writers

    guards.install(CONFIG)
    loggers.install(CONFIG)
    writers.install(CONFIG)
    lifeline.install(CONFIG)
    script_end.install()
    if CONFIG.get("overlay"):
        from _trainlint_probe import overlay

        overlay.install(CONFIG)
    imports.after_import("torch", _on_torch)
    imports.after_import("deepspeed.runtime.engine", _on_deepspeed)
    atexit.register(_at_exit)


def _in_forked_child() -> None:
    STATE.active = False


def quiet() -> None:
    """This process is a loader's worker: it does its work without us."""
    STATE.active = False
    while MODES:
        MODES.pop().__exit__(None, None, None)


def _at_exit() -> None:
    if STATE.active and STATE.torch is not None:
        from _trainlint_probe.clock import CLOCK

        CLOCK.script_ended()


def say_hello(kind: str, **facts: Any) -> None:
    """Tell the parent that this process was reached: the difference between 'no step' and 'hooks not seen'."""
    write_json(
        os.path.join(CONFIG["run_dir"], f"{kind}-{os.getpid()}.json"),
        {
            "pid": os.getpid(),
            "argv": list(getattr(sys, "orig_argv", [sys.executable])),
            "executable": sys.executable,
            **facts,
        },
    )


def write_json(path: str, content: object) -> None:
    """Whole or not at all: the parent may read at any moment, and the process may be killed at any moment."""
    temporary = f"{path}.{os.getpid()}.part"
    with _raw_open(temporary, "w", encoding="utf-8") as file:
        json.dump(content, file)
    os.replace(temporary, path)


def note_error(where: str) -> None:
    """An instrument that fails must not fail the user's run: it is reported beside the results."""
    try:
        with _raw_open(
            os.path.join(CONFIG["run_dir"], f"probe-error-{os.getpid()}.txt"), "a", encoding="utf-8"
        ) as file:
            file.write(f"{where}\n")
            traceback.print_exc(file=file)
    except OSError:
        pass


def _on_torch(torch: Any) -> None:
    STATE.torch = torch
    if CONFIG.get("start_method"):
        import multiprocessing

        multiprocessing.set_start_method(CONFIG["start_method"], force=True)
    from _trainlint_probe import clock, loader, saves

    _seed(torch)
    clock.install(torch, CONFIG)
    loader.install(torch, CONFIG)
    saves.install(torch, CONFIG)
    if CONFIG.get("shim"):
        from _trainlint_probe import cpushim

        cpushim.install(torch)
    for name in CONFIG.get("instruments", ()):
        try:
            _INSTALLERS[name](torch)
        except Exception:
            note_error(f"instrument {name}")
    _compare(torch)
    say_hello("torch", version=torch.__version__, cuda=torch.version.cuda, thread=threading.current_thread().name)


def _compare(torch: Any) -> None:
    """Last, so that what a change wraps is what the user's line calls."""
    if CONFIG.get("changes"):
        from _trainlint_probe import interventions

        interventions.install(torch, CONFIG)
    if CONFIG.get("toggle"):
        from _trainlint_probe import schedule

        schedule.install(torch, CONFIG)
    if CONFIG.get("lockstep"):
        from _trainlint_probe import lockstep

        lockstep.install(torch, CONFIG)


def _syncs(torch: Any) -> None:
    from _trainlint_probe import syncs

    syncs.install(torch, CONFIG)


def _memory(torch: Any) -> None:
    from _trainlint_probe import memory, memory_cuda

    memory.install(torch, CONFIG)
    memory_cuda.install(torch, CONFIG)


def _behaviours(torch: Any) -> None:
    from _trainlint_probe import collectives, observe

    observe.install(torch, CONFIG)
    collectives.install(torch, CONFIG)


def _breakdown(torch: Any) -> None:
    from _trainlint_probe import breakdown

    breakdown.install(torch, CONFIG)


def _lines(torch: Any) -> None:
    from _trainlint_probe import lines

    lines.install(torch, CONFIG)


def _parts(torch: Any) -> None:
    from _trainlint_probe import parts

    parts.install(torch, CONFIG)


def _limit(torch: Any) -> None:
    from _trainlint_probe import limit

    limit.install(torch, CONFIG)


def _predict(torch: Any) -> None:
    from _trainlint_probe import predict

    predict.install(torch, CONFIG)


_INSTALLERS = {
    "syncs": _syncs,
    "memory": _memory,
    "behaviours": _behaviours,
    "breakdown": _breakdown,
    "lines": _lines,
    "parts": _parts,
    "limit": _limit,
    "predict": _predict,
}


def _on_deepspeed(engine_module: Any) -> None:
    from _trainlint_probe import engines

    engines.install_deepspeed(engine_module)


def _seed(torch: Any) -> None:
    seed = CONFIG.get("seed")
    if seed is None:
        return
    import random

    torch.manual_seed(seed)
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed % 2**32)
