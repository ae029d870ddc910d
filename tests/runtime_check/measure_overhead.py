"""What the timing pass costs: its hooks per step in nanoseconds, and a comparison with them on and off in one process.

    python tests/runtime_check/measure_overhead.py [mlp|resnet] [processes] [rounds]

The hooks' own time is taken twice: in a loop of their own, and in their places within the step, between kernels that
have emptied the caches. The step that it is compared with is on-CPU time, which other work on the machine changes
little.

Rounds are ABBA, a block is one step; every other round compares off with off. The process is the replicate: the
median of the log ratios of each, and a t interval over them.
"""

from __future__ import annotations

import importlib.util
import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
T95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179)  # from 1 degree of freedom
T95 += (2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069)


def load_probe() -> None:
    root = ROOT / "runtime_check" / "probe"
    spec = importlib.util.spec_from_file_location(
        "_trainlint_probe", root / "__init__.py", submodule_search_locations=[str(root)]
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["_trainlint_probe"] = module
    spec.loader.exec_module(module)


def model_and_batch(torch: Any, name: str) -> tuple[Any, Any, Any]:
    nn = torch.nn
    if name == "mlp":
        layers = [nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)]
        return nn.Sequential(*layers), torch.randn(4096, 256), 128

    class Block(nn.Module):
        def __init__(self, inside: int, outside: int, stride: int) -> None:
            super().__init__()
            self.first = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
            self.second = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
            self.norms = nn.ModuleList([nn.BatchNorm2d(outside), nn.BatchNorm2d(outside)])
            self.short = nn.Conv2d(inside, outside, 1, stride, bias=False) if stride > 1 or inside != outside else None

        def forward(self, x: Any) -> Any:
            kept = x if self.short is None else self.short(x)
            x = torch.relu(self.norms[0](self.first(x)))
            return torch.relu(self.norms[1](self.second(x)) + kept)

    widths = [(64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1), (256, 512, 2)]
    blocks = [Block(*width) for width in widths] + [Block(512, 512, 1)]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10)]
    model = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), *blocks, *head)
    return model, torch.randn(64, 3, 64, 64), 4


def one_process(name: str, rounds: int) -> dict[str, float]:
    import torch

    torch.set_num_threads(1)
    load_probe()
    from torch.optim import optimizer as optimizers
    from torch.utils.data import DataLoader, TensorDataset, dataloader

    iterators = dataloader._BaseDataLoaderIter
    plain_next, plain_backward = iterators.__next__, torch.autograd.backward
    import _trainlint_probe as probe
    from _trainlint_probe import clock, loader

    config = {"warmup": 5, "steps": 10**9, "unit": "auto"}
    probe.STATE.torch = torch
    probe.STATE.active = True
    clock.install(torch, config)
    loader.install(torch, config)
    hooked_next, hooked_backward = iterators.__next__, torch.autograd.backward
    step_hooks = dict(optimizers._global_optimizer_post_hooks)

    def switch(on: bool) -> None:
        """Nothing is set on a class: that would make the interpreter forget what it knows of it, in both arms."""
        torch.autograd.backward = hooked_backward if on else plain_backward
        optimizers._global_optimizer_post_hooks.clear()
        if on:
            optimizers._global_optimizer_post_hooks.update(step_hooks)

    model, data, batch_size = model_and_batch(torch, name)
    optimizer = torch.optim.Adam(model.parameters())
    batches = DataLoader(TensorDataset(data), batch_size=batch_size)
    iterator = iter(batches)

    def step(on: bool) -> tuple[int, int]:
        nonlocal iterator
        take = hooked_next if on else plain_next
        try:
            begun, used = time.perf_counter_ns(), time.process_time_ns()
            (inputs,) = take(iterator)
        except StopIteration:
            iterator = iter(batches)
            begun, used = time.perf_counter_ns(), time.process_time_ns()
            (inputs,) = take(iterator)
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()
        return time.perf_counter_ns() - begun, time.process_time_ns() - used

    for on in (True, False) * 6:
        switch(on)
        step(on)
    ratios: dict[str, list[float]] = {"wall": [], "cpu": [], "null_wall": [], "null_cpu": []}
    off_ns = []
    for turn in range(2 * rounds):  # every other round compares off with off: what the machine alone does
        real = turn % 2 == 0
        sums = {True: [0, 0], False: [0, 0]}
        for arm in (False, True, True, False) if turn % 4 < 2 else (True, False, False, True):
            switch(arm and real)
            spent = step(arm and real)
            sums[arm][0] += spent[0]
            sums[arm][1] += spent[1]
        for clock_name, at in (("wall", 0), ("cpu", 1)):
            ratios[clock_name if real else f"null_{clock_name}"].append(math.log(sums[True][at] / sums[False][at]))
        off_ns.append(sums[False][1] / 2)
    switch(False)
    hooks = hooks_over_nothing(torch, clock, loader, [data[:batch_size]])
    (step_hook,) = step_hooks.values()
    middles = {name: statistics.median(values) for name, values in ratios.items()}

    def real_step() -> None:
        optimizer.zero_grad()
        model(data[:batch_size]).square().mean().backward()
        optimizer.step()

    return {
        **middles,
        "step_ns": statistics.median(off_ns),
        "hooks_ns": cost_in_a_loop(hooks, lambda: step_hook(optimizer, (), {})),
        "in_place_ns": cost_in_place(hooks, lambda: step_hook(optimizer, (), {}), real_step, max(30, rounds)),
    }


def hooks_over_nothing(torch: Any, clock: Any, loader: Any, batch: Any) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """The hooks of a batch and of a backward, with nothing under them."""

    class Empty:
        def __init__(self, loader_: Any) -> None:
            pass

        def __next__(self) -> Any:
            return batch

    loader._watch(torch, Empty, {})
    kept, torch.autograd.backward = torch.autograd.backward, lambda: None
    clock._hook_backward(torch)
    backward, torch.autograd.backward = torch.autograd.backward, kept
    return Empty(torch.utils.data.DataLoader([1, 2])).__next__, backward


def cost_in_a_loop(hooks: tuple[Callable[[], Any], ...], stepped: Callable[[], Any], times: int = 20_000) -> float:
    take, backward = hooks
    begun = time.process_time_ns()  # not wall: on a busy machine most of that is others'
    for _ in range(times):
        take()
        backward()
        stepped()
    return (time.process_time_ns() - begun) / times


def cost_in_place(
    hooks: tuple[Callable[[], Any], ...], stepped: Callable[[], Any], step: Callable[[], None], steps: int
) -> float:
    """Medians: where another process comes in between, that is no cost of the hook's."""
    now = time.perf_counter_ns
    spent: list[list[int]] = [[], [], [], []]
    for _ in range(steps):
        for at, hook in enumerate((*hooks, stepped, lambda: None)):
            step()
            begun = now()
            hook()
            spent[at].append(now() - begun)
    *costs, nothing = (statistics.median(times) for times in spent)
    return sum(costs) - len(costs) * nothing


def main(name: str, processes: int, rounds: int) -> None:
    found = []
    for number in range(processes):
        command = [sys.executable, __file__, "one", name, str(rounds)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found.append(json.loads(done.stdout))
        print(f"process {number + 1}: {found[-1]}", flush=True)
    step = statistics.median(entry["step_ns"] for entry in found)
    hooks = statistics.median(entry["hooks_ns"] for entry in found)
    in_place = statistics.median(entry["in_place_ns"] for entry in found)
    print(f"{name}: step {step / 1e6:.2f} ms on the CPU, hooks {hooks:.0f} ns a step: {hooks / step:.4%} of it")
    print(f"{name}: in their places between the kernels {in_place:.0f} ns a step: {in_place / step:.4%} of it")
    for clock in ("wall", "null_wall", "cpu", "null_cpu"):
        values = [entry[clock] for entry in found]
        middle = statistics.fmean(values)
        half = T95[len(values) - 2] * statistics.stdev(values) / math.sqrt(len(values))
        low, high = (100 * math.expm1(middle - half), 100 * math.expm1(middle + half))
        what = "off against off" if clock.startswith("null") else "on against off"
        unit = clock.removeprefix("null_")
        print(f"{name}: {what}, {unit}: {100 * math.expm1(middle):+.2f} % [{low:+.2f}, {high:+.2f}]")


if __name__ == "__main__":
    if sys.argv[1:2] == ["one"]:
        print(json.dumps(one_process(sys.argv[2], int(sys.argv[3]))))
    else:
        arguments = [*sys.argv[1:], *["mlp", "5", "200"][len(sys.argv) - 1 :]]
        main(arguments[0], int(arguments[1]), int(arguments[2]))
