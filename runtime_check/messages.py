"""What is said when a run gave no measurement, or not all of it. One place, so that each situation has one wording."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

from runtime_check.card import shared_card
from runtime_check.launch import Outcome
from runtime_check.measures import bytes_text, cores_text, steps_done
from runtime_check.options import Options, ignoring_flag

LAST_LINES = 12
FEWEST_STEPS = 5  # of a script that can be timed: two choose the clock, one is the warm-up, two boundaries make a step

STILL_S = 5.0  # without a step, and ten times the longest step

_OWN = str(Path(__file__).resolve().parent)

#: What torch says when a script asks for a GPU that is not there.
_CUDA_MISSING = re.compile(
    "|".join(
        (
            "Torch not compiled with CUDA enabled",
            "No CUDA GPUs are available",
            "module 'torch._C' has no attribute '_cuda_",
            "Found no NVIDIA driver",
            "not linked with support for cuda",
            "CUDA driver initialization failed",
            "Attempting to deserialize object on a CUDA device",
            "Cannot access accelerator device",
            "pin memory .* without an accelerator",
            "invalid device ordinal",
            "Expected a 'cuda' device",
            "Could not run '.*' with arguments from the 'CUDA' backend",
            "ProcessGroupNCCL is only supported with GPUs",
            "Distributed package doesn't have NCCL",
            "DistributedDataParallel device_ids .* only work with",
        )
    ),
    re.IGNORECASE,
)

SEVERAL_NODES = (
    "several nodes: nothing was compared, since each node would choose its launches by its own clock; "
    "compare on one node (--nnodes=1)."
)


def last_lines(log: str, count: int = LAST_LINES) -> str:
    return "\n".join("    " + line for line in _without_own_frames(log.rstrip().splitlines())[-count:])


def _without_own_frames(lines: list[str]) -> list[str]:
    """Of a traceback: what stands between the script and torch only while it is watched is none of its mistakes."""
    kept: list[str] = []
    own = False
    for line in lines:
        frame = line.lstrip()
        depth = len(line) - len(frame)
        if frame.startswith('File "'):
            own = frame.startswith(f'File "{_OWN}')
        elif depth < 4:  # the text of a frame's line is indented by more than the frame
            own = False
        if not own:
            kept.append(line)
    return kept


def needs_cuda(outcome: Outcome) -> bool:
    """The script failed because it asked for a GPU that is not there."""
    return bool(_CUDA_MISSING.search(outcome.log_tail)) or any(
        _CUDA_MISSING.search(error["message"]) for error in outcome.errors
    )


def ended_before_a_step(options: Options, outcome: Outcome) -> str:
    name = options.name()
    if outcome.fault:
        return f"the command could not be started: {outcome.fault}"
    refused = _refused(outcome)
    if refused and "trainlint verify" in outcome.log_tail:
        return (
            f"{name} was stopped from changing {refused}, which was there before the run. Its last lines:\n"
            f"{last_lines(outcome.log_tail)}\n"
            "  Pass --writes=redirect (it works on copies), or --writes=allow in a scratch copy of the project."
        )
    if outcome.exit_code == 0:
        return f"{name} ended normally and no training step was seen (no optimizer step, GradScaler step or backward)."
    how = f"code {outcome.exit_code}"
    if outcome.exit_code is not None and outcome.exit_code < 0:
        how = f"signal {-outcome.exit_code}"
    text = f"{name} ended with {how} before its first training step."
    if outcome.exit_code is None:
        text = f"{name} was ended before its first training step."
    if outcome.log_tail.strip():
        text += f" Its last lines:\n{last_lines(outcome.log_tail)}"
        text += _first_error(options, outcome, text)
    if outcome.exit_code == 2 and "usage:" in outcome.log_tail:
        text += "\n  If it needs arguments, put them after `--`."
    elif "No module named 'torch'" in outcome.log_tail and options.command is None:
        text += f"\n  {options.python} has no torch: name the Python that has it with --python."
    elif "No module named 'torch'" in outcome.log_tail:
        text += "\n  The Python of --cmd has no torch: begin it with the path of the one that has."
    elif outcome.exit_code == -9:
        text += "\n  Signal 9 is what the kernel sends when memory runs out."
    return text


def _first_error(options: Options, outcome: Outcome, said: str) -> str:
    """Of a rank: a launcher's own report fills the last lines and does not hold it. Else where in the script it was."""
    errors = [error for error in outcome.errors if error["type"] != "ChildFailedError"]
    for error in errors:
        if _first_line(error) not in said:
            return f"\n  An error before that: {_error_text(options, error)}"
    for error in errors[:1]:  # torch's own frames may fill the last lines
        if f'"{error["site"][0]}", line {error["site"][1]}' not in said:
            return f"\n  The line of the script is {_place(options, error)}."
    return ""


def _first_line(error: dict[str, Any]) -> str:
    return (str(error["message"]).splitlines() or [""])[0]


def _error_text(options: Options, error: dict[str, Any]) -> str:
    said = f"{error['type']}: {_first_line(error)[:200]}".removesuffix(": ")
    return f"{said} ({_place(options, error)})"


def _place(options: Options, error: dict[str, Any]) -> str:
    file = str(error["site"][0]).removeprefix(f"{options.cwd.absolute()}/")
    return f"{file}:{error['site'][1]}"


def _refused(outcome: Outcome) -> str:
    return next((path for what, path, _ in outcome.journal if what == "refused"), "")


def hooks_not_seen(options: Options, outcome: Outcome) -> str:
    """No process loaded the probe at all, or none of those that did imported torch while it was hooked."""
    if outcome.hellos:
        return (
            f"{options.name()} ran with trainlint's hooks, but never imported torch in a process that they reach "
            "(a container or ssh launcher?). Run verify inside it."
        )
    return f"no process of the command loaded trainlint's hooks{_kept_out_by(options)}{_last_words(outcome)}"


def _kept_out_by(options: Options) -> str:
    flag = ignoring_flag(options.command_line())
    if flag is None or options.bootstrap:
        others = "" if options.bootstrap else ", or use `--bootstrap`"
        return f" (python -I/-E/-S, a frozen app, or a container/ssh launcher?). Run verify inside it{others}."
    why = {
        "-I": "`python -I` ignores PYTHONPATH, by which they come",
        "-E": "`python -E` ignores PYTHONPATH, by which they come",
        "-S": "`python -S` runs no sitecustomize, which they are, and has no site-packages",
    }[flag]
    return f": {why}. Leave {flag} out, or add `--bootstrap`."


def _last_words(outcome: Outcome) -> str:
    """Of a script that failed: its error says more than that the hooks are missing."""
    if not outcome.exit_code or not outcome.log_tail.strip():
        return ""
    return f"\n  It ended with code {outcome.exit_code}. Its last lines:\n{last_lines(outcome.log_tail)}"


def no_step_in_time(options: Options, outcome: Outcome) -> str:
    if outcome.waiting_for_input:
        asked = outcome.waiting_for_input[0]
        prompt = f" ({asked['prompt'].strip()!r})" if asked["prompt"].strip() else ""
        return (
            f"the script is waiting for input on stdin{prompt}, at {asked['site'][0]}:{asked['site'][1]}. "
            "Nothing is ever typed there during verify: give it by an argument."
        )
    last = outcome.log_tail.rstrip().splitlines()
    said = f" (last line of the script: {last[-1].strip()[:120]!r})" if last else ""
    return (
        f"no optimizer step, GradScaler step or backward within {outcome.wall_s:.0f} s{said}. "
        "Try a smaller model or batch, `--unit batch`, or a longer `--deadline`."
    )


def fewer_steps(options: Options, outcome: Outcome) -> str | None:
    """The script ended, or the deadline came, before all steps were made."""
    if not outcome.results or outcome.run.few_steps:
        return None
    result = outcome.results[0]
    asked = options.warmup + options.steps
    if result["why"] == "steps" or steps_done(result) >= asked:
        return None
    made = f"after {steps_done(result)} of {asked} steps"
    if result["why"] != "script_ended":
        made = f"the deadline came {made}{_stood_still(result)}"
    else:
        made = _ended(options, outcome, made)
    return f"{made}; what was counted rests on few steps."


def _stood_still(result: dict[str, Any]) -> str:
    """A slow script and one that hangs look alike by their steps, not by the time since the last one."""
    since, boundaries = result.get("since_boundary_s") or 0.0, result["boundaries_ns"]
    longest = max((later - earlier for earlier, later in itertools.pairwise(boundaries)), default=0) / 1e9
    if len(boundaries) < 2 or since < max(STILL_S, 10 * longest):
        return ""
    return f", and by then the script had stood still for {since:.0f} s (a rank that waits for another, a lock, a dead worker?)"


def too_few_steps(options: Options, outcome: Outcome) -> str:
    """The script ended before a single step could be measured."""
    result = outcome.results[0]
    if result["why"] != "script_ended":
        return fewer_steps(options, outcome) or "the script made no whole step."
    made = _ended(options, outcome, f"after {steps_done(result)} of {options.warmup + options.steps} steps")
    return f"{made}; a measurement takes at least {FEWEST_STEPS}: give it more data, a smaller batch or more epochs."


def _ended(options: Options, outcome: Outcome, made: str) -> str:
    errors = [error for error in outcome.errors if error["type"] != "ChildFailedError"]
    if errors:
        return f"the script failed {made}: {_error_text(options, errors[0])}"
    if outcome.exit_code is not None and outcome.exit_code < 0:
        return f"the script was ended by signal {-outcome.exit_code} {made}"
    code = f" with code {outcome.exit_code}" if outcome.exit_code else ""
    return f"the script ended{code} {made}"


def missing_ranks(outcome: Outcome) -> str | None:
    if not outcome.results:
        return None
    world = max(result["world"] for result in outcome.results)
    seen = {result["rank"] for result in outcome.results}
    missing = [str(rank) for rank in range(world) if rank not in seen]
    if not missing:
        return None
    return f"{len(seen)} of {world} ranks reported; missing ranks {', '.join(missing)}."


def every_step_skipped(result: dict[str, Any]) -> str | None:
    total = sum(optimizer["steps"] for optimizer in result["optimizers"])
    skipped = result["skipped_by_scaler"]
    if not skipped:
        return None
    if skipped >= total:
        return f"GradScaler skipped all {total} steps: the gradients were never finite, nothing was trained."
    if skipped * 4 >= total:
        return f"GradScaler skipped {skipped} of {total} steps."
    return None


def busy_machine(load: float, cpus: int, threads: int | None = None) -> str | None:
    if load <= cpus:
        return None
    advice = "use a quiet machine" if threads == 1 else "use --threads 1 or a quiet machine"
    return f"load {load:.1f} on {cores_text(cpus)}: step times spread; {advice}."


def out_of_memory(error: dict[str, Any], cuda: bool) -> list[str]:
    """Where memory ran out, what held it, and which remedies apply."""
    file, line = error["site"][0], error["site"][1]
    first = (str(error["message"]).splitlines() or [""])[0]
    lines = [f"the script runs out of memory as it is, at {file}:{line}: {first[:200]}"]
    shared = shared_card(str(error["message"]))
    if shared is not None:
        lines += [shared, "remedy: end those processes, or take another card (--device cuda:N)"]
    memory = error.get("memory")
    if not memory:
        return lines
    alive = memory["alive"]
    held = ", ".join(f"{name} {bytes_text(size)}" for name, size in list(alive["by_category"].items())[:5])
    lines.append(f"alive at that moment: {bytes_text(alive['bytes'])} of tensors ({held})")
    lines.extend(
        f"  {bytes_text(entry['bytes']):>10}  {entry['file']}:{entry['line']}  {entry['category']}"
        for entry in alive["by_line"][:5]
    )
    lines.extend(remedies(alive["by_category"], alive["bytes"]))
    return lines


def remedies(by_category: dict[str, int], total: int) -> list[str]:
    """What applies to the category that holds most."""
    if not total:
        return ["remedy: the single allocation is too large; a smaller batch or input is the only cure"]
    largest = max(by_category, key=lambda name: by_category[name])
    advice = {
        "activations": "activation checkpointing, autocast, or a smaller batch with gradient accumulation",
        "optimizer state": "an optimizer with less state, or sharding it (ZeroRedundancyOptimizer, FSDP2)",
        "optimizer temporaries": "foreach=False or fused=True in the optimizer",
        "parameters": "sharding the model (FSDP2), or a smaller one",
        "gradients": "zero_grad(set_to_none=True) before the forward, or sharding (FSDP2)",
        "backward temporaries": "a smaller batch with gradient accumulation, or activation checkpointing",
        "batch": "a smaller batch, or smaller inputs",
    }.get(largest, "look at the lines above: they hold what no step has used yet")
    return [f"remedy: {largest} hold {by_category[largest] / total:.0%} of it: {advice}"]
