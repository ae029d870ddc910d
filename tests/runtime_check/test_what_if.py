"""`--try`: which candidates there are, what is said of them, and in which order. Nothing is run here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import verify_runs  # noqa: F401  (puts the checkout on the path)

from runtime_check import machine
from runtime_check.compare.budget import bounded
from runtime_check.compare.records import Change, Decision, Design, Effect, Proposal
from runtime_check.evidence import Evidence, Verdict
from runtime_check.launch import Outcome, Pass
from runtime_check.what_if import edits
from runtime_check.what_if.candidates import candidates, names_of
from runtime_check.what_if.loaders import batch_sizes
from runtime_check.what_if.records import NAMES, Candidate, Row
from runtime_check.what_if.rows import ranked, row_text, to_object

SCRIPT = """\
loader = DataLoader(data, batch_size=12, shuffle=True)
optimizer = torch.optim.AdamW(
    model.parameters(),
    lr=1e-3,
)
loss = criterion(model(x), y)
loss.backward()
"""


def model(script: str, **changes: Any) -> dict[str, Any]:
    facts = {
        "site": [script, 6, "<module>"],
        "training": True,
        "grad": True,
        "calls": 20,
        "class": "Network",
        "wrapper": None,
        "device": "cpu",
        "autocast": False,
        "compiled": False,
        "dimensions": 4,
        "convolutions": True,
        "channels_last": False,
        "blocks": {"name": "layers", "count": 4, "of": "ModuleList", "file": None, "line": None},
    }
    return {**facts, **changes}


def optimizer(script: str, **changes: Any) -> dict[str, Any]:
    facts = {
        "type": "AdamW",
        "site": [script, 2, ""],
        "knows_fused": True,
        "fused": False,
        "floating": True,
        "bytes": 8,
    }
    return {**facts, **changes}


@pytest.fixture
def seen(tmp_path: Path) -> Any:
    """`seen(cuda=..., models=[...], parts_changes...)` -> what the passes saw of a script."""
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)

    def make(
        cuda: bool = False, world: int = 1, backwards: int = 20, evaluated: bool = False, **parts: Any
    ) -> Evidence:
        loader = {
            "site": [str(script), 1, ""],
            "role": "train",
            "workers": 0,
            "batch_size": 12,
            "prefetch_factor": 0,
            "persistent_workers": False,
            "pin_memory": False,
            "length": 40,
            "start_ns": [30_000_000],
            "batches": 20,
        }
        facts: dict[str, Any] = {
            "models": [model(str(script))],
            "optimizers": [optimizer(str(script))],
            "backwards": [{"site": [str(script), 7, ""], "calls": 20}],
            "cuda": cuda,
            "devices": int(cuda),
            "bfloat16": True,
            "scaler": False,
        }
        for name, value in parts.items():
            if name == "loader":
                loader.update(value)
            elif name in ("model", "optimizer"):
                facts[f"{name}s"][0].update(value)
            else:
                facts[name] = value
        result = {
            "rank": 0,
            "world": world,
            "anchor": 0,
            "optimizers": [{"type": "AdamW", "steps": 20}],
            "backwards": backwards,
            "loaders": [loader],
            "parts": facts,
        }
        memory = {"memory": {"phases": {"train": {}, **({"eval": {}} if evaluated else {})}}}
        return Evidence(
            0.03,
            cuda,
            observed=Outcome(Pass("observe"), [result], 0, "script", 1.0, ""),
            memory=Outcome(Pass("memory"), [memory], 0, "script", 1.0, ""),
        )

    return make


def the(name: str, evidence: Evidence) -> Candidate:
    (candidate,) = candidates((name,), evidence)
    return candidate


def test_names_are_those_of_the_list() -> None:
    assert names_of("workers, amp") == ("amp", "workers")
    assert names_of("all") == NAMES
    for wrong in ("amps", "", "amp,nothing"):
        with pytest.raises(ValueError, match="--try takes some of amp, workers"):
            names_of(wrong)


def test_workers_live_on_over_whole_epochs(seen: Any) -> None:
    made = the("persistent-workers", seen(loader={"workers": 2}))
    assert made.time is not None
    assert made.time.block == 40  # an epoch
    assert made.time.change.parameters["options"] == {"persistent_workers": True}
    assert made.edits[0].instead == "DataLoader(data, batch_size=12, shuffle=True, persistent_workers=True)"
    assert "whole epochs of 40 steps" in str(made.remark)
    accumulated = the("persistent-workers", seen(loader={"workers": 2}, backwards=80))
    assert accumulated.time is not None
    assert accumulated.time.block == 10  # four batches for each step
    for loader, why in (
        ({}, "has no workers"),
        ({"workers": 2, "persistent_workers": True}, "live on already"),
        ({"workers": 2, "length": None}, "is not known"),
    ):
        assert why in str(the("persistent-workers", seen(loader=loader)).reason)
    assert "one rank only" in str(the("persistent-workers", seen(world=2, loader={"workers": 2})).reason)


def test_the_start_of_workers_bounds_what_keeping_them_saves(seen: Any) -> None:
    """A timing pass of 10 ms a step, and 30 ms to the first batch."""
    boundaries = [n * 10_000_000 for n in range(20)]
    timed = {"warmup": 2, "boundaries_ns": boundaries, "cpu_ns": boundaries, "flags": {}, "sums": {}}
    outcome = Outcome(Pass("timing"), [timed], 0, "script", 1.0, "")
    short = the("persistent-workers", replace(seen(loader={"workers": 2, "length": 10}), timed=outcome))
    long = the("persistent-workers", replace(seen(loader={"workers": 2, "length": 5000}), timed=outcome))
    assert short.time is not None
    assert long.time is not None
    assert short.time.gain == pytest.approx(30 / 130)
    assert bounded(short.time, 0.03) is None
    decision = bounded(long.time, 0.03)
    assert decision is not None
    assert "persistent_workers=True could save at most 0.1% of the step" in decision.why


def test_twice_as_many_batches_ahead_in_blocks_longer_than_these(seen: Any) -> None:
    made = the("prefetch-factor", seen(loader={"workers": 3, "prefetch_factor": 4}))
    assert made.time is not None
    assert made.time.change.parameters["options"] == {"prefetch_factor": 8}
    assert made.time.block == 3 * 8 + 1
    assert "has no workers" in str(the("prefetch-factor", seen()).reason)
    more = candidates(("workers",), seen())[-1]
    assert more.time is not None
    assert more.time.block > 2 * more.time.change.parameters["options"]["num_workers"]


def test_what_needs_cuda_says_so(seen: Any) -> None:
    for name in ("tf32", "cudnn-benchmark", "pin-memory"):
        candidate = the(name, seen())
        assert candidate.proposals == ()
        assert "not run here: needs CUDA" in row_text(Row(candidate))
        assert the(name, seen(cuda=True)).proposals


def test_workers_are_tried_with_none_two_four_and_as_many_as_cores(seen: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "usable_cpus", lambda: 12)
    tried = candidates(("workers",), seen(loader={"workers": 2}))
    assert [candidate.time.change.parameters["options"] for candidate in tried if candidate.time] == [
        {"num_workers": 0},
        {"num_workers": 4},
        {"num_workers": 12},
    ]
    assert tried[0].edits[0].instead == "DataLoader(data, batch_size=12, shuffle=True, num_workers=0)"


@pytest.mark.parametrize(
    ("now", "sizes"), [(12, [6, 16, 24]), (32, [16, 64]), (1, [2, 8]), (7, [3, 8, 14]), (4, [2, 8])]
)
def test_batch_sizes_are_half_double_and_the_next_multiple_of_eight(now: int, sizes: list[int]) -> None:
    assert batch_sizes(now) == sizes


def test_another_batch_size_is_compared_per_sample(seen: Any) -> None:
    tried = candidates(("batch-size",), seen())
    assert [candidate.title for candidate in tried] == ["batch_size=6", "batch_size=16", "batch_size=24"]
    assert {candidate.time.metric for candidate in tried if candidate.time} == {"sample_time"}
    assert {candidate.memory.metric for candidate in tried if candidate.memory} == {"train_peak_bytes"}
    assert tried[0].edits[0].instead == "DataLoader(data, batch_size=6, shuffle=True)"
    assert the("batch-size", seen(loader={"batch_size": None})).reason


def test_amp_is_bfloat16_where_the_device_has_it_and_scaled_float16_else(seen: Any) -> None:
    new = the("amp", seen())
    assert new.time is not None
    assert new.time.change.for_probe()["kind"] == "autocast"
    assert new.edits[0].instead.startswith('with torch.autocast("cpu", dtype=torch.bfloat16):')
    old = the("amp", seen(cuda=True, bfloat16=False, model={"device": "cuda"}))
    assert old.time is not None
    assert old.time.change.kind == "scaled_float16"
    assert any("GradScaler" in edit.instead for edit in old.edits)
    assert the("amp", seen(model={"autocast": True})).reason == "the script trains under autocast already"
    assert the("amp", seen(scaler=True)).reason


def test_fused_is_for_three_optimizers(seen: Any) -> None:
    able = the("fused", seen())
    assert able.title == "fused AdamW"
    assert able.edits[0].instead == "torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)"
    assert "the script's is RMSprop" in str(the("fused", seen(optimizer={"type": "RMSprop"})).reason)
    assert "already" in str(the("fused", seen(optimizer={"fused": True})).reason)


def test_what_does_not_fit_the_model_is_not_run(seen: Any) -> None:
    assert the("channels-last", seen()).proposals
    assert the("channels-last", seen(model={"dimensions": 2})).reason
    assert the("channels-last", seen(model={"channels_last": True})).reason
    assert the("checkpoint", seen()).title == "checkpointing the 4 elements of Network.layers"
    assert the("checkpoint", seen(model={"blocks": None})).reason
    assert the("compile", seen()).edits[0].instead.startswith("model.compile()")
    assert the("compile", seen(model={"compiled": True})).reason
    assert the("compile", seen(models=[])).reason


def test_no_grad_is_tried_where_the_evaluation_keeps_its_graph(seen: Any, tmp_path: Path) -> None:
    script = str(tmp_path / "train.py")
    assert "no evaluation" in str(the("no-grad", seen()).reason)
    evaluation = [model(script), model(script, training=False)]
    assert the("no-grad", seen(evaluated=True, models=evaluation)).memory is not None
    evaluation[1]["site"] = [script, 5, "evaluate"]
    assert the("no-grad", seen(evaluated=True, models=evaluation)).edits[0].line == 5
    evaluation[1]["grad"] = False
    assert "already" in str(the("no-grad", seen(evaluated=True, models=evaluation)).reason)


def test_no_grad_does_not_go_where_training_calls_the_model_too(seen: Any, tmp_path: Path) -> None:
    """A loss function that training and evaluation share: the line is that of the evaluation's loader."""
    script = str(tmp_path / "train.py")
    shared = [model(script), model(script, training=False)]
    assert the("no-grad", seen(evaluated=True, models=shared)).edits == ()
    evidence = seen(evaluated=True, models=shared)
    evidence.observed.results[0]["loaders"].append({"role": "eval", "site": [script, 3, ""]})
    (edit,) = the("no-grad", evidence).edits
    assert (edit.line, edit.instead) == (3, "with torch.no_grad():  # around the evaluation's loop over this loader")


def test_no_sync_needs_ranks_and_micro_batches(seen: Any) -> None:
    ddp = {"wrapper": "DistributedDataParallel"}
    assert the("no-sync", seen(model=ddp)).reason
    assert the("no-sync", seen(world=2, model=ddp)).reason
    tried = the("no-sync", seen(world=2, model=ddp, backwards=60))
    assert tried.time is not None
    assert tried.time.change.for_probe()["micro_batches"] == 3


def test_the_model_is_called_as_on_its_line(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("y = net(x)\nloss = F.mse_loss(self.net(x), y)\nz = a(b(x))\n")
    assert [edits.called([str(script), row, ""]) for row in (1, 2, 3)] == ["net", "self.net", "model"]
    assert edits.call_with([str(script), 1, ""], ("DataLoader",), {"num_workers": "2"})[0].instead == "num_workers=2"
    assert edits.call_with(["?", 0, "?"], ("DataLoader",), {"num_workers": "2"}) == ()


# -- words and order


def decision(change: Change, saving: tuple[float, float, float], metric: str = "step_time", why: str = "") -> Decision:
    design = Design.MEMORY if "bytes" in metric else Design.TOGGLE
    effect = Effect(metric, design, 10.0, 8.0, "ms", *saving, 0.95, 5, 60, "wall", 0.001)
    return Decision(Proposal(change, design, metric), Verdict.CONFIRMED, why, effect)


def table(*measured: tuple[str, tuple[float, float, float] | None, tuple[float, float, float] | None]) -> list[Row]:
    tried, decisions = [], []
    for title, time, memory in measured:
        change = Change("flag", title, parameters={"title": title})
        made = [
            decision(change, saving, metric)
            for saving, metric in ((time, "step_time"), (memory, "train_peak_bytes"))
            if saving is not None
        ]
        proposals = {one.proposal.metric: one.proposal for one in made}
        tried.append(
            Candidate("amp", title, proposals.get("step_time"), proposals.get("train_peak_bytes"))
            if made
            else Candidate("amp", title, reason="needs CUDA")
        )
        decisions += made
    return list(ranked(("amp",), tried, decisions).rows)


def test_a_gain_is_said_in_times_and_per_cent() -> None:
    (row,) = table(("AMP", (0.2908, 0.2754, 0.3056), (-0.02, -0.02, -0.02)))
    assert row_text(row) == "AMP: 1.41x faster [1.38, 1.44], peak memory +2.0 %"
    (row,) = table(("checkpointing", (-0.25, -0.3, -0.2), (0.3, 0.28, 0.32)))
    assert row_text(row) == "checkpointing: 1.25x slower [1.20, 1.30], peak memory -30 % [-32, -28]"
    (row,) = table(("fused", (0.01, -0.01, 0.03), None))
    assert row_text(row) == "fused: no difference in speed seen: 1.01x [0.99, 1.03]"


def test_the_most_gain_comes_first_and_what_was_not_run_last() -> None:
    rows = table(
        ("slower", (-0.25, -0.3, -0.2), (0.3, 0.3, 0.3)),
        ("not run", None, None),
        ("unclear", (0.05, -0.05, 0.15), (0.0, 0.0, 0.0)),
        ("faster", (0.3, 0.28, 0.32), (-0.1, -0.1, -0.1)),
        ("less memory", None, (0.4, 0.4, 0.4)),
        ("somewhat faster", (0.1, 0.08, 0.12), None),
    )
    assert [row.candidate.title for row in rows] == [
        "faster",
        "somewhat faster",
        "less memory",
        "unclear",
        "slower",
        "not run",
    ]


def test_what_fails_holm_is_not_called_faster_without_saying_so() -> None:
    change = Change("flag", "AMP")
    one = decision(change, (0.1, 0.02, 0.18), why="x, which does not stand among 9 findings tested together")
    (row,) = ranked(("amp",), [Candidate("amp", "AMP", one.proposal)], [one]).rows
    assert "does not stand among all that were tried" in row_text(row)


def test_the_json_has_ratios_and_lines() -> None:
    change = Change("flag", "AMP")
    one = decision(change, (0.5, 0.4, 0.6))
    made = to_object(ranked(("amp",), [Candidate("amp", "AMP", one.proposal)], [one]))
    (candidate,) = made["candidates"]
    assert candidate["speedup"] == {"value": 2.0, "interval": [1.6667, 2.5]}
    assert candidate["time"]["effect"]["saving"] == 0.5
    assert candidate["memory_change"] is None


def test_a_row_does_not_say_its_title_twice() -> None:
    time = Proposal(Change("autocast", "AMP"), Design.TOGGLE, "step_time")
    memory = Proposal(Change("autocast", "AMP"), Design.MEMORY, "train_peak_bytes")
    effect = Effect("train_peak_bytes", Design.MEMORY, 100.0, 80.0, "bytes", 0.2, 0.2, 0.2, 1.0, 2, 0, "counted")
    late = Decision(time, Verdict.NOT_RUN, "AMP was not compared: it would take about 4m (--budget)")
    row = Row(Candidate("amp", "AMP", time, memory), late, Decision(memory, Verdict.CONFIRMED, "", effect))
    assert row_text(row) == "AMP: peak memory -20 %; time not measured: it would take about 4m (--budget)"
