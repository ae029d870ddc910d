"""What the observing pass says of the script's parts, as the candidates ask for it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from runtime_check.evidence import Evidence

NO_CUDA = "needs CUDA, and there is no CUDA device here"
UNKNOWN = 0.5  # the gain that the planner assumes where nothing bounds it


@dataclass(frozen=True)
class Parts:
    """Facts of rank 0. Empty lists where the pass saw nothing."""

    models: tuple[dict[str, Any], ...] = ()
    optimizers: tuple[dict[str, Any], ...] = ()
    backwards: tuple[dict[str, Any], ...] = ()
    loaders: tuple[dict[str, Any], ...] = ()
    cuda: bool = False
    devices: int = 0
    bfloat16: bool = True
    scaler: bool = False
    world: int = 1
    backwards_per_step: float = 1.0

    @property
    def trained(self) -> dict[str, Any] | None:
        """The model that the step calls most: trained, with gradients."""
        found = [model for model in self.models if model["training"] and model["grad"]]
        return max(found, key=lambda model: model["calls"], default=None)

    @property
    def evaluated(self) -> tuple[dict[str, Any], ...]:
        return tuple(model for model in self.models if not model["training"])

    @property
    def training_loader(self) -> dict[str, Any] | None:
        found = [loader for loader in self.loaders if loader["role"] == "train"]
        return max(found, key=lambda loader: loader["batches"], default=None)

    @property
    def evaluation_loader(self) -> dict[str, Any] | None:
        return next((loader for loader in self.loaders if loader["role"] == "eval"), None)

    @property
    def device(self) -> str:
        model = self.trained
        return model["device"] if model is not None else ("cuda" if self.cuda else "cpu")


def parts_of(evidence: Evidence) -> Parts:
    result = evidence.first(evidence.observed)
    if result is None or "parts" not in result:
        return Parts()
    parts = result["parts"]
    return Parts(
        models=tuple(parts["models"]),
        optimizers=tuple(parts["optimizers"]),
        backwards=tuple(parts["backwards"]),
        loaders=tuple(result.get("loaders", ())),
        cuda=parts["cuda"],
        devices=parts["devices"],
        bfloat16=parts["bfloat16"],
        scaler=parts["scaler"],
        world=result["world"],
        backwards_per_step=evidence.micro_batches,
    )


def share_of(evidence: Evidence, *phases: str) -> float:
    """Of the step, by the breakdown pass: a bound on what a change of these phases can save."""
    shares = evidence.shares
    return UNKNOWN if shares is None else min(1.0, sum(shares.get(phase, 0.0) for phase in phases))
