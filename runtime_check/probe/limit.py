"""A limit on memory for one launch: the search for a batch size asks whether the script stays below it.

On CUDA the allocator enforces it (`set_per_process_memory_fraction`), and the script runs out of memory as it would on a
smaller card. On the CPU live tensor bytes are counted, and the process leaves once they pass the limit; that the
machine itself is never exhausted is the system's limit on this process's data (RLIMIT_DATA).
"""

from __future__ import annotations

from typing import Any

import _trainlint_probe as probe
from _trainlint_probe.clock import CLOCK
from _trainlint_probe.sites import user_site

SLACK = 2**30  # bytes besides tensors: the interpreter, threads, the data set
FOUND: dict[str, Any] = {}


def install(torch: Any, config: dict[str, Any]) -> None:
    wanted = config["memory_limit"]
    if torch.cuda.is_available():
        _limit_allocator(torch, wanted)
    else:
        _limit_data(wanted["bytes"])
        _limit_counted(int(wanted["bytes"] * (1 - wanted["headroom"])))
    CLOCK.on_finish.append(lambda: {"limit": _record(torch)})


def _limit_allocator(torch: Any, wanted: dict[str, Any]) -> None:
    cuda = torch.cuda

    def limit() -> None:
        free, total = cuda.mem_get_info()
        allowed = min(wanted["bytes"] or free, total)
        FOUND["bytes"] = allowed
        cuda.set_per_process_memory_fraction(allowed * (1 - wanted["headroom"]) / total)

    cuda._lazy_call(limit)  # once CUDA is in use: a launcher's process shall not open it


def _limit_data(limit: int) -> None:
    try:
        import resource

        with open("/proc/self/status", encoding="ascii") as file:
            now = next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmData"))
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (now + 2 * limit + SLACK, hard))
    except (ImportError, OSError, ValueError, StopIteration):
        pass  # another system; the counting below is then alone


def _limit_counted(limit: int) -> None:
    from _trainlint_probe.memory import LIVE

    FOUND["bytes"] = limit
    look = LIVE._look_for_peak

    def look_and_leave() -> None:
        look()
        if LIVE.total > limit and probe.STATE.active and not CLOCK.finished:
            FOUND["over"] = LIVE.total
            FOUND["site"] = list(user_site(2))
            CLOCK.finish("over_limit")
            CLOCK._stop()

    LIVE._look_for_peak = look_and_leave  # type: ignore[method-assign]


def _record(torch: Any) -> dict[str, Any]:
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        return {**FOUND, "peak": torch.cuda.max_memory_allocated(), "reserved": torch.cuda.max_memory_reserved()}
    from _trainlint_probe.memory import LIVE

    return {**FOUND, "peak": LIVE.peak, "reserved": LIVE.peak}
