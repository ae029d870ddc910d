"""Changes that the probe makes at run time: what they do at their lines, and that they do nothing elsewhere or when off."""

from __future__ import annotations

import gc
import importlib
import inspect
import types
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


@pytest.fixture
def interventions(probe_module: Any) -> Iterator[Any]:
    """What the changes wrap is put back afterwards."""
    module = probe_module("interventions")
    clock = probe_module("clock").CLOCK
    modules = torch.nn.modules.module
    owners: list[tuple[Any, str]] = [
        *((torch.Tensor, name) for name in ("item", "tolist", "numpy", "cpu", "to", "cuda", "copy_", "backward")),
        *((torch.Tensor, f"__{name}__") for name in ("bool", "int", "float", "index", "format", "repr", "str")),
        (gc, "collect"),
        (torch.optim.Optimizer, "zero_grad"),
        (torch.nn.Module, "zero_grad"),
        (torch.autograd.anomaly_mode.detect_anomaly, "__enter__"),
        (torch.autograd.anomaly_mode.set_detect_anomaly, "__init__"),
        (torch.utils.data.DataLoader, "__init__"),
        (torch.nn.Module, "__call__"),
        (torch.nn.parallel.DistributedDataParallel, "forward"),
    ]
    kept = [(owner, name, getattr(owner, name)) for owner, name in owners]
    hooks = [dict(modules._global_forward_pre_hooks), dict(modules._global_forward_hooks)]
    of_optimizers = importlib.import_module("torch.optim.optimizer")
    optimizers = (of_optimizers._global_optimizer_pre_hooks, of_optimizers._global_optimizer_post_hooks)
    optimizer_hooks = [dict(registered) for registered in optimizers]
    always = dict(modules._global_forward_hooks_always_called)
    yield module
    for owner, name, value in kept:
        setattr(owner, name, value)
    for now, before in (
        (modules._global_forward_pre_hooks, hooks[0]),
        (modules._global_forward_hooks, hooks[1]),
        (modules._global_forward_hooks_always_called, always),
    ):
        now.clear()
        now.update(before)
    for now, before in zip(optimizers, optimizer_hooks, strict=True):
        now.clear()
        now.update(before)
    clock.optimizers.clear()
    clock.boundaries.clear()
    clock.on_phase.clear()
    clock.on_boundary.clear()
    module.CHANGES.clear()


def here(offset: int = 0) -> dict[str, Any]:
    """The line of the caller, `offset` further down, as a change's place."""
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    row = frame.f_back.f_lineno + offset
    return {"file": frame.f_back.f_code.co_filename, "rows": (row, row)}


def test_an_elided_wait_gives_the_last_value_and_only_at_its_line(interventions: Any) -> None:
    place = here(5)
    change = interventions.make(torch, {"kind": "elide_sync", **place})
    seen = []
    for value in (1.0, 2.0, 3.0):
        change.switch(value > 1.5)
        seen.append((torch.tensor(value).item(), float(torch.tensor(value))))
        assert torch.tensor(value).item() == value
    assert seen == [(1.0, 1.0), (1.0, 1.0), (1.0, 1.0)]
    assert change.used == 4
    change.switch(False)
    assert change.failure is None


def test_a_line_that_reads_again_with_the_change_off_gets_the_new_value(interventions: Any) -> None:
    change = interventions.make(torch, {"kind": "elide_sync", **here(4)})
    seen = []
    for value, on in ((1.0, False), (2.0, True), (3.0, False), (4.0, True)):
        change.switch(on)
        seen.append(torch.tensor(value).item())
    assert seen == [1.0, 1.0, 3.0, 3.0]


def test_two_changes_of_one_function_each_know_their_line(interventions: Any) -> None:
    first = interventions.make(torch, {"kind": "skip_call", "call": "gc.collect", **here(5)})
    second = interventions.make(torch, {"kind": "skip_call", "call": "gc.collect", **here(5)})
    for change in (first, second):
        change.switch(True)

    at_first = gc.collect()
    at_second = gc.collect()
    elsewhere = gc.collect()
    assert (at_first, at_second) == (None, None)
    assert isinstance(elsewhere, int)
    assert (first.used, second.used) == (1, 1)
    first.switch(False)
    assert second.on


def test_a_call_that_is_not_there_is_a_failure_that_is_said(
    interventions: Any, tmp_path: Any, probe_module: Any
) -> None:
    import _trainlint_probe as probe

    probe.CONFIG["run_dir"] = str(tmp_path)
    change = interventions.make(torch, {"kind": "skip_call", "call": "gc.nothing_of_the_kind", **here()})
    assert "AttributeError" in change.failure
    change.switch(True)
    assert list(tmp_path.glob("probe-error-*.txt"))


def test_backward_gets_other_arguments_at_its_line(interventions: Any) -> None:
    change = interventions.make(torch, {"kind": "backward_arguments", "arguments": {"retain_graph": False}, **here(4)})
    change.switch(True)
    x = torch.ones(3, requires_grad=True)
    loss = (x * x).sum()
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


def test_a_flag_is_set_and_given_back_as_the_script_had_it(interventions: Any) -> None:
    before = torch.backends.cudnn.benchmark
    change = interventions.make(torch, {"kind": "flag", "flags": {"backends.cudnn.benchmark": not before}})
    change.switch(True)
    assert torch.backends.cudnn.benchmark is not before
    change.switch(True)
    change.switch(False)
    assert torch.backends.cudnn.benchmark is before


@pytest.mark.parametrize("on_each_step", [False, True])
def test_anomaly_detection_is_off_however_it_is_turned_on(interventions: Any, on_each_step: bool) -> None:
    change = interventions.make(torch, {"kind": "anomaly_off"})
    try:
        if not on_each_step:
            torch.autograd.set_detect_anomaly(True)
        for on in (True, False, True):
            change.switch(on)
            if on_each_step:
                with torch.autograd.detect_anomaly():
                    assert torch.is_anomaly_enabled() is not on
                assert not torch.is_anomaly_enabled()
            else:
                assert torch.is_anomaly_enabled() is not on
        change.switch(False)
        assert torch.is_anomaly_enabled() is not on_each_step
    finally:
        torch.set_anomaly_enabled(False)


def test_the_optimizer_walks_otherwise_and_comes_to_the_same(interventions: Any, probe_module: Any) -> None:
    def trained(switching: bool) -> Any:
        torch.manual_seed(0)
        model = torch.nn.Linear(8, 8)
        optimizer = torch.optim.Adam(model.parameters())
        clock = probe_module("clock").CLOCK
        clock.optimizers[:] = [optimizer]
        options = {"fused": True, "foreach": False}
        change = interventions.make(torch, {"kind": "optimizer", "options": options})
        for step in range(6):
            change.switch(switching and step % 2 == 1)
            assert optimizer.param_groups[0]["fused"] is (True if switching and step % 2 == 1 else None)
            optimizer.zero_grad()
            model(torch.ones(2, 8)).square().sum().backward()
            optimizer.step()
        change.switch(False)
        assert change.used == (6 if switching else 0)  # two options on three switches
        return model.weight.detach().clone()

    torch.testing.assert_close(trained(True), trained(False))


def test_gradients_are_let_go(interventions: Any) -> None:
    change = interventions.make(torch, {"kind": "set_to_none"})
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for on in (False, True):
        change.switch(on)
        model(torch.ones(1, 2)).sum().backward()
        optimizer.zero_grad(set_to_none=False)
        assert (model.weight.grad is None) is on


def test_autocast_surrounds_the_models_forward_alone(interventions: Any) -> None:
    change = interventions.make(torch, {"kind": "autocast", "dtype": "bfloat16"})
    seen: list[Any] = []

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = torch.nn.Linear(4, 4)

        def forward(self, x: Any) -> Any:
            y = self.inner(x)
            seen.append(y.dtype)
            return {"out": y}

    model = Model()
    for on in (True, False):
        change.switch(on)
        assert model(torch.ones(2, 4))["out"].dtype is torch.float32
        assert not torch.is_autocast_enabled("cpu")
    assert seen == [torch.bfloat16, torch.float32]


def test_autocast_is_left_when_the_forward_raises(interventions: Any) -> None:
    change = interventions.make(torch, {"kind": "autocast"})
    change.switch(True)
    with pytest.raises(RuntimeError):
        torch.nn.Linear(4, 4)(torch.ones(2, 3))
    assert not torch.is_autocast_enabled("cpu")


def test_blocks_are_recomputed_and_the_gradients_are_the_same(interventions: Any) -> None:
    def gradients(on: bool) -> tuple[Any, int]:
        change = interventions.make(torch, {"kind": "checkpoint"})
        change.switch(on)
        torch.manual_seed(0)
        model = torch.nn.Sequential(*(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()) for _ in range(3)))
        model(torch.ones(2, 4)).sum().backward()
        return model[0][0].weight.grad, change.used

    (with_it, used), (without, unused) = gradients(True), gradients(False)
    torch.testing.assert_close(with_it, without)
    assert (used, unused) == (3, 0)


class Inner(torch.nn.Module):
    """A block that holds a Sequential of its own, as the MLP of a transformer is one."""

    def __init__(self) -> None:
        super().__init__()
        self.mlp = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 4))

    def forward(self, x: Any) -> Any:
        return x + self.mlp(x)


def test_what_is_recomputed_in_backward_is_no_model_of_its_own(interventions: Any) -> None:
    """The modules that checkpointing calls again are outermost there: they are neither checkpointed nor cast."""
    change = interventions.make(torch, {"kind": "checkpoint"})
    change.switch(True)
    model = torch.nn.Sequential(*(Inner() for _ in range(3)))
    for _ in range(2):
        model(torch.ones(2, 4, requires_grad=True)).sum().backward()
    assert change.used == 6
    assert all(isinstance(part.forward, types.MethodType) for part in model[0].mlp)  # nothing was put around them


def test_autocast_of_a_script_that_checkpoints_by_itself(interventions: Any) -> None:
    from torch.utils.checkpoint import checkpoint

    class Checkpointing(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = Inner()

        def forward(self, x: Any) -> Any:
            return checkpoint(self.block, x, use_reentrant=False)

    change = interventions.make(torch, {"kind": "autocast"})
    change.switch(True)
    model = Checkpointing()
    model(torch.ones(2, 4, requires_grad=True)).sum().backward()
    assert change.used == 1
    assert model.block.mlp[0].weight.grad is not None


def test_channels_last_comes_and_goes(interventions: Any) -> None:
    change = interventions.make(torch, {"kind": "channels_last"})
    model = torch.nn.Conv2d(3, 4, 3)
    for on in (True, False):
        change.switch(on)
        model(torch.ones(2, 3, 8, 8))
        assert model.weight.is_contiguous(memory_format=torch.channels_last) is on


def test_a_loader_at_the_lines_gets_other_options(interventions: Any, probe_module: Any) -> None:
    import _trainlint_probe as probe

    place = here(6)
    probe.CONFIG["project"] = [str(place["file"]).rsplit("/", 1)[0] + "/"]
    probe_module("sites")._KIND.clear()
    probe.STATE.active, before = True, probe.STATE.active
    probe.STATE.torch = torch
    change = interventions.make(torch, {"kind": "loader", "options": {"num_workers": 2, "batch_size": 8}, **place})
    changed = lambda: torch.utils.data.DataLoader(list(range(32)), 4, True)  # noqa: E731
    other = torch.utils.data.DataLoader(list(range(32)), 4)
    change.switch(True)
    loader = changed()
    assert (loader.num_workers, loader.batch_size) == (2, 8)
    assert isinstance(loader.sampler, torch.utils.data.RandomSampler)
    change.switch(False)
    assert changed().num_workers == 0
    assert other.batch_size == 4
    probe.STATE.active = before


def test_options_that_a_loader_would_refuse_are_left_out(probe_module: Any) -> None:
    with_options = probe_module("changes_loader").with_options
    given = {"num_workers": 2, "prefetch_factor": 4, "persistent_workers": True}
    assert with_options(given, {"num_workers": 0}) == {"num_workers": 0}
    assert with_options({"batch_sampler": [1]}, {"batch_size": 8}) == {"batch_sampler": [1]}


def test_evaluation_runs_without_a_graph_and_training_with_one(interventions: Any, probe_module: Any) -> None:
    clock = probe_module("clock").CLOCK
    change = interventions.make(torch, {"kind": "eval_no_grad"})
    change.switch(True)
    for phase, grad in (("train", True), ("eval", False), ("other", True), ("eval", False), ("train", True)):
        clock.set_phase(phase)
        assert torch.is_grad_enabled() is grad
    assert change.used == 2


def test_every_kind_has_its_installer(interventions: Any, probe_module: Any) -> None:
    for kind, module in interventions.MODULES.items():
        assert callable(getattr(probe_module(module), f"install_{kind}"))


def test_an_optimizer_that_is_made_later_is_changed_too(interventions: Any, probe_module: Any) -> None:
    """In a launch that is changed as a whole, the switch comes before there is an optimizer."""
    change = interventions.make(torch, {"kind": "optimizer", "options": {"fused": True, "foreach": False}})
    change.switch(True)
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    assert optimizer.param_groups[0]["fused"] is True
    assert change.used == 2
    assert change.failure is None


def trained_in_float16(interventions: Any, on: bool, spike: bool = False) -> tuple[Any, Any]:
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    change = interventions.make(torch, {"kind": "scaled_float16", "dtype": "float16"})
    change.switch(on)
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(torch.ones(2, 8)).square().mean()
        (loss * 1e30 if spike else loss).backward()
        optimizer.step()
    return model.weight.detach().clone(), change


def test_float16_is_scaled_and_comes_to_nearly_the_same(interventions: Any) -> None:
    plain, off = trained_in_float16(interventions, on=False)
    scaled, change = trained_in_float16(interventions, on=True)
    assert off.used == 0
    assert change.used == 3
    assert change.failure is None
    torch.testing.assert_close(scaled, plain, atol=5e-3, rtol=5e-3)
    assert not torch.equal(scaled, plain)


def test_a_step_whose_gradients_overflow_is_left_out(interventions: Any) -> None:
    torch.manual_seed(0)
    before = torch.nn.Linear(8, 1).weight.detach().clone()
    after, _ = trained_in_float16(interventions, on=True, spike=True)
    assert torch.equal(before, after)


def test_the_model_of_the_step_is_compiled_once_and_the_wrapper_goes(interventions: Any, probe_module: Any) -> None:
    clock = probe_module("clock").CLOCK
    probe_module("clock").probe.STATE.active = True
    compiled: list[Any] = []
    original = torch.nn.Module.compile
    plain_call = torch.nn.Module.__call__
    torch.nn.Module.compile = lambda self: compiled.append(self)
    try:
        change = interventions.make(torch, {"kind": "compile"})
        change.switch(True)
        model, loss = torch.nn.Sequential(torch.nn.Linear(4, 2)), torch.nn.MSELoss()
        with torch.no_grad():
            model(torch.ones(1, 4))
        assert compiled == []
        loss(model(torch.ones(1, 4)), torch.ones(1, 2)).backward()
        assert compiled == [model]
        assert change.used == 1
        for callback in clock.on_boundary:
            callback(1)
        assert torch.nn.Module.__call__ is plain_call
    finally:
        torch.nn.Module.compile = original
        probe_module("clock").probe.STATE.active = False


def test_only_the_last_micro_batch_reduces(interventions: Any, probe_module: Any) -> None:
    clock = probe_module("clock").CLOCK
    synced: list[bool] = []
    wrapper = torch.nn.parallel.DistributedDataParallel
    wrapper.forward = lambda self: synced.append(self.require_backward_grad_sync)
    change = interventions.make(torch, {"kind": "no_sync", "micro_batches": 3})
    model = wrapper.__new__(wrapper)
    torch.nn.Module.__init__(model)
    model.require_backward_grad_sync = True
    for step, on in enumerate((False, True, True)):
        change.switch(on)
        for _ in range(3):
            model.forward()
        clock.boundaries.append(step)
    with torch.no_grad():
        model.forward()
    assert synced == [True] * 3 + [False, False, True] * 2 + [True]
    assert change.used == 4
    assert model.require_backward_grad_sync is True
