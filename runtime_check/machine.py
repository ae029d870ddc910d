"""The machine that the run happens on, and how busy it was meanwhile.

psutil and nvidia-ml-py are used where they are installed.
"""

from __future__ import annotations

import os
import platform
import threading
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from runtime_check.statistics import median

PERIOD_S = 0.5
_BUSY = ("user", "nice", "system", "irq", "softirq", "steal")  # of psutil.cpu_times; "guest" is part of "user"


@dataclass(frozen=True)
class Utilisation:
    """Medians over one launch. Shares are of the whole machine (CPU) or card (GPU); None: not measured."""

    cpu: float | None = None
    memory_used: int | None = None
    memory_total: int | None = None
    swap_used: int | None = None
    disk_read_bytes_per_s: float | None = None
    gpu: float | None = None
    gpu_memory_used: int | None = None
    others_cpus: float | None = None  # processors that programs other than the script took, on average
    missing: tuple[str, ...] = ()  # what is not installed, so not measured


def describe() -> dict[str, Any]:
    """Host facts for the report."""
    try:
        load = [round(value, 2) for value in os.getloadavg()]
    except (OSError, AttributeError):
        load = []
    return {
        "cpu": cpu_model(),
        "cpus": usable_cpus(),
        "load": load,
        "platform": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }


def cpu_model() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor()


def usable_cpus() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def available_bytes() -> int | None:
    """Memory that a new process could take. None: not known on this system."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable"))
    except (OSError, ValueError, StopIteration):
        pass
    try:
        import psutil  # type: ignore[import-untyped, unused-ignore]
    except ImportError:
        return None
    return int(psutil.virtual_memory().available)


class Sampler:
    """Looks at the machine twice a second while a launch runs, from the parent: nothing of it is in the script's
    process.
    """

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="trainlint-sampler", daemon=True)
        self._samples: dict[str, list[float]] = {}
        self._missing: list[str] = []
        self._begun: _CpuTime | None = None
        self._others_cpus: float | None = None

    def __enter__(self) -> Sampler:
        self._begun = _cpu_time()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(5)
        self._others_cpus = others_cpus(self._begun, _cpu_time())

    def result(self) -> Utilisation:
        def middle(name: str) -> float | None:
            values = self._samples.get(name)
            return median(values) if values else None

        def whole(name: str) -> int | None:
            value = middle(name)
            return None if value is None else int(value)

        return Utilisation(
            cpu=middle("cpu"),
            memory_used=whole("memory_used"),
            memory_total=whole("memory_total"),
            swap_used=whole("swap_used"),
            disk_read_bytes_per_s=middle("disk_read"),
            gpu=middle("gpu"),
            gpu_memory_used=whole("gpu_memory_used"),
            others_cpus=self._others_cpus,
            missing=tuple(self._missing),
        )

    def _run(self) -> None:
        host, cards = _host_reader(), _gpu_reader()
        if host is None:
            self._missing.append("psutil")
        if cards is None:
            self._missing.append("nvidia-ml-py")
        while not self._stop.wait(PERIOD_S):
            for reader in (host, cards):
                for name, value in (reader() if reader is not None else {}).items():
                    self._samples.setdefault(name, []).append(value)


@dataclass(frozen=True)
class _CpuTime:
    """Seconds. `own`: of this process and of what it started and waited for."""

    wall: float
    busy: float
    own: float


def _cpu_time() -> _CpuTime | None:
    """Of the processors that this process may use. None without psutil."""
    try:
        import psutil  # type: ignore[import-untyped, unused-ignore]
    except ImportError:
        return None
    processors = psutil.cpu_times(percpu=True)
    try:
        usable = [processors[number] for number in os.sched_getaffinity(0)]
    except (AttributeError, IndexError):
        usable = processors
    busy = sum(getattr(one, kind, 0.0) for one in usable for kind in _BUSY)
    own = os.times()
    return _CpuTime(time.monotonic(), busy, own.user + own.system + own.children_user + own.children_system)


def others_cpus(begun: _CpuTime | None, ended: _CpuTime | None) -> float | None:
    """How many processors other programs took between two readings, on average."""
    if begun is None or ended is None or ended.wall <= begun.wall:
        return None
    others = (ended.busy - begun.busy) - (ended.own - begun.own)
    return round(max(0.0, others) / (ended.wall - begun.wall), 3)


def _host_reader() -> Any:
    try:
        import psutil  # type: ignore[import-untyped, unused-ignore]
    except ImportError:
        return None
    psutil.cpu_percent()
    last = [psutil.disk_io_counters()]

    def read() -> dict[str, float]:
        memory, swap, disk = psutil.virtual_memory(), psutil.swap_memory(), psutil.disk_io_counters()
        values = {
            "cpu": psutil.cpu_percent() / 100,
            "memory_used": float(memory.total - memory.available),
            "memory_total": float(memory.total),
            "swap_used": float(swap.used),
        }
        if disk is not None and last[0] is not None:
            values["disk_read"] = (disk.read_bytes - last[0].read_bytes) / PERIOD_S
        last[0] = disk
        return values

    return read


def _gpu_reader() -> Any:
    """Of the busiest card. None without nvidia-ml-py; nothing is read where it finds no driver."""
    try:
        import pynvml  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
    except pynvml.NVMLError:
        return dict

    def read() -> dict[str, float]:
        try:
            return {
                "gpu": max(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu for handle in handles) / 100,
                "gpu_memory_used": float(max(pynvml.nvmlDeviceGetMemoryInfo(handle).used for handle in handles)),
            }
        except (pynvml.NVMLError, ValueError):
            return {}

    return read
