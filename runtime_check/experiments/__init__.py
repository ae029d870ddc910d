"""One file per kind of claim: each takes a finding and what the passes saw, and answers."""

from __future__ import annotations

from runtime_check.evidence import Experiment
from runtime_check.experiments import behaviours, crash, distributed, loader, memory, syncs

EXPERIMENTS: dict[str, Experiment] = {
    **behaviours.EXPERIMENTS,
    **crash.EXPERIMENTS,
    **distributed.EXPERIMENTS,
    **loader.EXPERIMENTS,
    **memory.EXPERIMENTS,
    **syncs.EXPERIMENTS,
}
