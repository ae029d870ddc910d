"""One `verify`: launch the passes, answer the findings, say what holds the run back."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from runtime_check import machine, messages
from runtime_check.against import Against
from runtime_check.claims import EXPERIMENTS as CLAIMS
from runtime_check.claims import reason_not_run
from runtime_check.compare.answers import proposals_for, with_comparisons
from runtime_check.compare.comparing import compare
from runtime_check.compare.records import Comparisons
from runtime_check.diagnosis import Diagnosis, diagnose
from runtime_check.evidence import Answer, Evidence, Verdict
from runtime_check.experiments import EXPERIMENTS
from runtime_check.findings import Finding
from runtime_check.launch import Outcome, Pass, Session
from runtime_check.machine import Sampler, Utilisation
from runtime_check.measures import steps_seen
from runtime_check.options import Options
from runtime_check.plan import Plan, make_plan
from runtime_check.reach import judged_by_reach, rows_to_watch
from runtime_check.statistics import median
from runtime_check.what_if import batch_size, predict
from runtime_check.what_if.candidates import candidates
from runtime_check.what_if.gpus import memory_of
from runtime_check.what_if.records import Candidate, WhatIf
from runtime_check.what_if.rows import ranked

MIN_EFFECT_CPU = 0.03
MIN_EFFECT_GPU = 0.02

EXIT_RAN = 0
EXIT_CONFIRMED = 1
EXIT_USAGE = 2
EXIT_NOTHING_MEASURED = 3


@dataclass(frozen=True)
class Report:
    """All that one `verify` has to say. `failure`: why there is no measurement; then `exit_code` is not 0."""

    options: Options
    exit_code: int
    host: dict[str, Any]
    evidence: Evidence
    outcomes: tuple[Outcome, ...] = ()
    answers: tuple[tuple[Finding, Answer], ...] = ()
    diagnosis: Diagnosis | None = None
    utilisation: Utilisation | None = None
    failure: str | None = None
    out_of_memory: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    shim: bool = False
    comparisons: Comparisons | None = None
    files: dict[str, str] = field(default_factory=dict)  # path of the script and of each finding -> SHA-256
    made_at: str = ""  # UTC
    against: Against | None = None  # an earlier report, with --baseline
    what_if: WhatIf | None = None
    batch_search: batch_size.BatchSearch | None = None
    prediction: predict.Prediction | None = None


@dataclass
class _Progress:
    """What is being done, for whoever shows it: `show(what, passes, number of the pass, steps done, steps asked)`.

    After the passes the number is 0, and what is counted are launches.
    """

    show: Callable[[str, int, int, int, int], None] = field(default=lambda *_: None)


def verify(
    options: Options,
    findings: list[Finding] | None = None,
    show: Callable[[str, int, int, int, int], None] | None = None,
    fail_on_confirmed: bool = False,
    more: Sequence[Candidate] = (),
) -> Report:
    """Run the user's script a few times for a few steps each. Nothing of it is left when this returns.

    `more`: candidates besides those of `options.candidates`, measured and ranked with them.
    """
    searching = options.find_batch_size and not options.candidates
    plan = make_plan(findings or [], parts=bool(options.candidates), short=searching)
    progress = _Progress(show) if show is not None else _Progress()
    session = Session(options)
    session.lines = rows_to_watch(plan.answered)
    try:
        if options.predict:
            return _predicted(options, session, progress)
        return _Run(options, plan, session, progress, fail_on_confirmed, more).report()
    finally:
        session.close()


def _predicted(options: Options, session: Session, progress: _Progress) -> Report:
    """Fake tensors only: nothing else of the script is run, so that it need not fit here."""
    outcomes: list[Outcome] = []

    def show(what: str, done: int, of: int) -> None:
        progress.show(what, 0, 0, done, of)

    card = memory_of(options.gpu) if options.gpu is not None else None
    made = predict.predict(session, options.gpu, card, show, outcomes)
    if made.failure is not None and options.shim and messages.needs_cuda(outcomes[-1]):
        session.shim = True
        outcomes.clear()
        made = predict.predict(session, options.gpu, card, show, outcomes)
    return Report(
        options=options,
        exit_code=EXIT_NOTHING_MEASURED if made.failure is not None else EXIT_RAN,
        host=machine.describe(),
        evidence=Evidence(MIN_EFFECT_CPU, False),
        outcomes=tuple(outcomes),
        shim=session.shim,
        prediction=made,
    )


class _Run:
    def __init__(
        self,
        options: Options,
        plan: Plan,
        session: Session,
        progress: _Progress,
        fail_on_confirmed: bool,
        more: Sequence[Candidate],
    ) -> None:
        self.options = options
        self.more = tuple(more)
        self.plan = plan
        self.session = session
        self.progress = progress
        self.fail_on_confirmed = fail_on_confirmed
        self.host = machine.describe()
        self.outcomes: list[Outcome] = []
        self.compared: list[Outcome] = []  # launches of comparisons
        self.by_name: dict[str, Outcome] = {}
        self.utilisation: Utilisation | None = None
        self.others_cpus: list[float] = []  # of each launch that is not instrumented
        self.timed_again: list[Outcome] = []
        self.files = hashes(options, (*plan.answered, *plan.not_run))
        self.made_at = datetime.now(timezone.utc).isoformat(timespec="seconds")
        self.short: str | None = None  # said when the script has fewer steps than were asked for

    def report(self) -> Report:
        first, *others = self.plan.passes
        outcome = self._launch(first, 1)
        if not outcome.stepped and not self.session.shim and self.options.shim and messages.needs_cuda(outcome):
            self.session.shim = True
            self.outcomes.clear()  # what failed without it says nothing about the script
            outcome = self._launch(first, 1)
        if not outcome.stepped:
            return self._failed(outcome)
        if self._adapt_to_short_script(outcome):
            outcome = self._launch(first, 1)
        for number, wanted in enumerate(others, 2):
            if self.session.left_s() < 5:
                break
            self._launch(wanted, number)
        self._time_again()
        return self._succeeded()

    def _time_again(self) -> None:
        timed = self.by_name.get("timing")
        for _ in range(self.options.repeat - 1 if timed is not None else 0):
            assert timed is not None
            if self.session.left_s() < 5 + timed.wall_s:
                break
            outcome = self._launch(timed.run, len(self.plan.passes))
            if outcome.stepped:
                self.timed_again.append(outcome)
            self.by_name["timing"] = timed

    def _launch(self, wanted: Pass, number: int) -> Outcome:
        total = len(self.plan.passes)
        asked = 1 if wanted.few_steps else self.options.warmup + self.options.steps

        def steps(done: int) -> None:
            self.progress.show(wanted.name, total, number, done, asked)

        steps(0)
        if wanted.instruments:
            outcome = self.session.launch(wanted, steps)
        else:
            with Sampler() as sampler:
                outcome = self.session.launch(wanted, steps)
            used = sampler.result()
            self.others_cpus += [used.others_cpus] if used.others_cpus is not None else []
            self.utilisation = replace(used, others_cpus=median(self.others_cpus) if self.others_cpus else None)
        self.outcomes.append(outcome)
        if outcome.stepped or wanted.few_steps:
            self.by_name[wanted.name] = outcome
        return outcome

    def _adapt_to_short_script(self, outcome: Outcome) -> bool:
        """A script that ends within the warm-up, or soon after it, is measured with less of it."""
        result = outcome.results[0]
        boundaries = len(result["boundaries_ns"])
        if result["why"] != "script_ended" or steps_seen(result) * 4 >= self.options.steps or boundaries < 3:
            return False
        if self.options.warmup == 1:
            return False
        self.short = messages.fewer_steps(self.options, outcome)
        self.options = replace(self.options, warmup=1, steps=boundaries - 2)
        self.session.options = self.options
        return True

    def _evidence(self, failed: Outcome | None = None) -> Evidence:
        cuda = any(result["device"] for outcome in self.outcomes for result in outcome.results)
        delta = self.options.min_effect
        if delta is None:
            delta = MIN_EFFECT_GPU if cuda else MIN_EFFECT_CPU
        return Evidence(
            min_effect=delta,
            cuda=cuda,
            observed=self.by_name.get("observe"),
            memory=self.by_name.get("memory"),
            broken_down=self.by_name.get("breakdown"),
            timed=self.by_name.get("timing"),
            spawned=self.by_name.get("spawn"),
            timed_again=tuple(self.timed_again),
            failed=failed,
        )

    def _answers(self, evidence: Evidence) -> tuple[tuple[Finding, Answer], ...]:
        answered = []
        for finding in self.plan.answered:
            name = CLAIMS[finding.code]
            answered.append((finding, judged_by_reach(finding, EXPERIMENTS[name](finding, evidence), name, evidence)))
        reasons = [(finding, Answer(Verdict.NOT_RUN, reason_not_run(finding.code))) for finding in self.plan.not_run]
        return tuple(sorted(answered + reasons, key=lambda pair: (pair[0].path, pair[0].row, pair[0].code)))

    def _failed(self, outcome: Outcome) -> Report:
        ran_out = _ran_out_of_memory([outcome])
        if ran_out is not None and self.session.left_s() > 5:
            outcome = self._memory_of_failure(outcome)
            ran_out = _ran_out_of_memory([outcome]) or ran_out
        evidence = self._evidence(failed=outcome)
        code, text = _failure(self.options, outcome)
        answers = self._answers(evidence)
        report = self._report(evidence, code, answers)
        if ran_out is not None and self.options.find_batch_size:
            found = self._search(self._smallest_batch())
            report = replace(report, batch_search=found, outcomes=(*self.outcomes, *self.compared))
        if ran_out is not None:
            lines = messages.out_of_memory(ran_out, evidence.cuda)
            diagnosis = diagnose(evidence, self.utilisation, ran_out_of_memory=True)
            return replace(report, failure=lines[0], out_of_memory=tuple(lines), diagnosis=diagnosis)
        return replace(report, failure=text, warnings=tuple(self._warnings(failed=True)))

    def _memory_of_failure(self, outcome: Outcome) -> Outcome:
        """Run out of memory once more under the memory pass, which knows what holds it."""
        again = self._launch(Pass("memory", ("memory",), until_eval=True), 2)
        return again if _ran_out_of_memory([again]) is not None else outcome

    def _succeeded(self) -> Report:
        evidence = self._evidence()
        ran_out = _ran_out_of_memory(self.outcomes)
        lines = messages.out_of_memory(ran_out, evidence.cuda) if ran_out is not None else []
        answers, comparisons, what_if = self._compared(self._answers(evidence), evidence)
        confirmed = any(answer.verdict is Verdict.CONFIRMED for _, answer in answers)
        code = EXIT_CONFIRMED if self.fail_on_confirmed and confirmed else EXIT_RAN
        if evidence.timing is None and not answers and ran_out is None:
            code = EXIT_NOTHING_MEASURED
        report = self._report(evidence, code, answers)
        diagnosis = diagnose(evidence, self.utilisation, ran_out_of_memory=ran_out is not None)
        report = replace(report, comparisons=comparisons, what_if=what_if)
        if self.options.find_batch_size:
            found = self._search(evidence.observed)
            report = replace(report, batch_search=found, outcomes=(*self.outcomes, *self.compared))
            if found.largest is None and code == EXIT_RAN:  # as a prediction that was not made
                report = replace(report, exit_code=EXIT_NOTHING_MEASURED)
        return replace(report, diagnosis=diagnosis, out_of_memory=tuple(lines))

    def _compared(
        self, answers: tuple[tuple[Finding, Answer], ...], evidence: Evidence
    ) -> tuple[tuple[tuple[Finding, Answer], ...], Comparisons | None, WhatIf | None]:
        """With the change and without: what a comparison can decide, within the budget."""
        asked = self.options.candidates
        tried = [*candidates(asked, evidence), *self.more]
        if self.options.several_nodes:
            return answers, None, ranked(asked, tried, ()) if tried else None
        proposals = proposals_for(answers, evidence) if self.options.budget_s > 0 else []
        proposals += [proposal for candidate in tried for proposal in candidate.proposals]
        if not proposals:
            return answers, None, ranked(asked, tried, ()) if tried else None

        def show(what: str, done: int, of: int) -> None:
            self.progress.show(what, 0, 0, done, of)

        compared = compare(self.session, evidence, proposals, self.options.budget_s, show)
        self.compared += compared.outcomes
        what_if = ranked(asked, tried, compared.comparisons.decisions) if tried else None
        return tuple(with_comparisons(answers, compared.comparisons)), compared.comparisons, what_if

    def _smallest_batch(self) -> Outcome:
        """The script does not fit as it is: where its loader is made shows with batches of one."""
        change = {"kind": "loader", "file": None, "rows": None, "options": {"batch_size": 1}}
        return self._launch(Pass("batch size 1", ("behaviours",), extra={"changes": [change]}), 2)

    def _search(self, observed: Outcome | None) -> batch_size.BatchSearch:
        results = observed.results if observed is not None else []
        trained = [one for result in results for one in result.get("loaders", ()) if one["role"] == "train"]
        loader = max(trained, key=lambda one: one["batches"], default=None)
        cuda = any(result["device"] for result in results)

        def show(what: str, done: int, of: int) -> None:
            self.progress.show(what, 0, 0, done, of)

        return batch_size.find(self.session, loader, cuda, show, self.compared)

    def _report(self, evidence: Evidence, code: int, answers: tuple[tuple[Finding, Answer], ...]) -> Report:
        return Report(
            options=self.options,
            exit_code=code,
            host=self.host,
            evidence=evidence,
            outcomes=(*self.outcomes, *self.compared),
            answers=answers,
            utilisation=self.utilisation,
            warnings=tuple(self._warnings()),
            shim=self.session.shim,
            files=self.files,
            made_at=self.made_at,
        )

    def _warnings(self, failed: bool = False) -> list[str]:
        found: list[str | None] = [self.short]
        for outcome in self.outcomes:
            found.append(messages.missing_ranks(outcome))
            if not failed:  # else it is the failure
                found.append(messages.fewer_steps(self.options, outcome))
            found += [messages.every_step_skipped(result) for result in outcome.results[:1]]
            if (
                outcome.run.name in ("observe", "memory", "breakdown", "timing")
                and self.by_name
                and not outcome.stepped
            ):
                found.append(f"the {outcome.run.name} pass made no step; what it would have shown is missing.")
            found += [f"an instrument failed: {text.strip().splitlines()[-1]}" for text in outcome.probe_errors]
        if len(self.outcomes) < len(self.plan.passes) and self.by_name:
            found.append("the time was up before all passes had run (--timeout).")
        if "timing" in self.by_name and len(self.timed_again) < self.options.repeat - 1:
            made = len(self.timed_again) + 1
            found.append(f"{made} of the {self.options.repeat} timing runs that were asked for gave steps (--timeout).")
        if self.options.several_nodes:
            found.append(messages.SEVERAL_NODES)
        timed = self.by_name.get("timing")
        try:
            load = os.getloadavg()[0] if timed is not None else 0.0
            threads = timed.results[0]["threads"] if timed is not None else None
            found.append(messages.busy_machine(load, machine.usable_cpus(), threads))
        except (OSError, AttributeError):
            pass
        # Passes that stood still say it once, though each for another number of seconds.
        return list({text.split(" had stood still for ")[0]: text for text in reversed(found) if text}.values())[::-1]


def hashes(options: Options, findings: tuple[Finding, ...]) -> dict[str, str]:
    """Which text was measured: a reader of the report can tell whether a file has changed since."""
    script = options.script_path()
    paths = {finding.path for finding in findings} | ({str(script)} if script is not None else set())
    found = {}
    for path in sorted(paths):
        try:
            found[path] = hashlib.sha256(Path(path).read_bytes()).hexdigest()
        except OSError:
            continue
    return found


def _failure(options: Options, outcome: Outcome) -> tuple[int, str]:
    """Exit code and text for a launch that gave no step."""
    if outcome.fault:
        return EXIT_USAGE, messages.ended_before_a_step(options, outcome)
    if outcome.results:  # hooks fired, but the clock never came to a boundary
        return EXIT_NOTHING_MEASURED, messages.too_few_steps(options, outcome)
    if outcome.why == "deadline":
        if not outcome.torches and not outcome.waiting_for_input and not outcome.hellos:
            return EXIT_NOTHING_MEASURED, messages.hooks_not_seen(options, outcome)
        return EXIT_NOTHING_MEASURED, messages.no_step_in_time(options, outcome)
    if not outcome.hellos or (not outcome.torches and outcome.exit_code == 0):
        return EXIT_NOTHING_MEASURED, messages.hooks_not_seen(options, outcome)
    return EXIT_USAGE, messages.ended_before_a_step(options, outcome)


def _ran_out_of_memory(outcomes: list[Outcome]) -> dict[str, Any] | None:
    """The error of the launch that ran out of memory; one that knows what held it, if there is one."""
    errors = [error for outcome in outcomes for error in outcome.errors if error["out_of_memory"]]
    return max(errors, key=lambda error: "memory" in error) if errors else None
