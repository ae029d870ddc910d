"""What this ran on, without any name that is private to it."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path


def machine() -> str:
    """ "AMD EPYC 7B13, 2 cores, Linux, Python 3.11.7" """
    cores = os.cpu_count() or 1
    return f"{_processor()}, {cores} {'core' if cores == 1 else 'cores'}, {platform.system()}, Python {platform.python_version()}"


def load() -> str:
    """The load average of the last minute: how much else was going on."""
    return f"{os.getloadavg()[0]:.1f}"


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    try:
        asked = ["sysctl", "-n", "machdep.cpu.brand_string"]
        return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return platform.processor() or platform.machine()
