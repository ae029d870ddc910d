"""The measuring half of trainlint: run a few real steps of a training script and say which claims hold.

It never imports `trainlint`, and the process that starts the run never imports torch: the probe (in `probe/`) is
injected into the user's own command and writes what it saw into the run's folder.
"""

from __future__ import annotations

__version__ = "0.1.0"
