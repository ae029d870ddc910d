"""`trainlint rule`"""

from __future__ import annotations

import json
from typing import Any

import pytest


@pytest.mark.parametrize("asked", ["TL001", "tl001", "unused-suppression"])
def test_the_page_of_a_rule(lint: Any, asked: str) -> None:
    output = lint("rule", asked).stdout
    assert output.startswith(
        "TL001 unused-suppression\nlevel: warning, claim: -\n\nA suppression comment that silences"
    )
    assert "\nWhy is this bad?\n" in output
    assert "\n    loss_value = loss.detach()\n" in output
    assert "```" not in output


def test_all_rules(lint: Any) -> None:
    lines = lint("rule", "--all").stdout.splitlines()
    assert lines[0] == "TL000  not-checked                 error    -"
    assert lines[2] == "TL101  item-in-hot-loop            warning  sync"
    assert [line[:5] for line in lines] == ["TL000", "TL001", "TL101", "TL305", "TL501"]


def test_all_rules_as_json(lint: Any) -> None:
    rules = json.loads(lint("rule", "--all", "--output-format", "json").stdout)
    assert [rule["code"] for rule in rules] == ["TL000", "TL001", "TL101", "TL305", "TL501"]
    assert rules[0]["summary"] == "A file that could not be read, decoded or parsed."
    assert rules[0]["explanation"].startswith(rules[0]["summary"])
    assert (rules[3]["level"], rules[3]["claim"]) == ("advice", "loader")
    (one,) = [json.loads(lint("rule", "TL000", "--output-format", "json").stdout)]
    assert one == rules[0]


@pytest.mark.parametrize(
    ("asked", "hint"),
    [
        ("TL102", "there is no rule 'TL102'; did you mean TL101 (item-in-hot-loop)?"),
        ("item-in-loop", "did you mean TL101 (item-in-hot-loop)?"),
        ("zzz", "`trainlint rule --all` lists them"),
    ],
)
def test_unknown_rule(lint: Any, asked: str, hint: str) -> None:
    result = lint("rule", asked)
    assert result.exit_code == 2
    assert hint in result.stderr


def test_nothing_and_too_much_asked_for(lint: Any) -> None:
    for arguments in ((), ("TL101", "--all")):
        result = lint("rule", *arguments)
        assert result.exit_code == 2
        assert "name one rule, such as `trainlint rule TL101`, or all of them" in result.stderr


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing", "TL313"),
        ("BrokenPipeError: [Errno 32] Broken pipe", "TL301"),
        (
            "An attempt has been made to start a new process before\n the current process has finished its\n bootstrapping phase.",
            "TL301",
        ),
        ("AttributeError: Can't pickle local object 'main.<locals>.<lambda>'", "TL302"),
        ("RuntimeError: Trying to backward through the graph a second time (or directly access saved", "TL206"),
        ("RuntimeError: unscale_() has already been called on this optimizer since the last update().", "TL402"),
        ("RuntimeError: received 0 items of ancdata", "TL319"),
        ("_pickle.UnpicklingError: Weights only load failed. This file can still be loaded", "TL905"),
        ("RuntimeError: Expected to have finished reduction in the prior iteration before", "TL502"),
        (
            "RuntimeError: torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.",
            "TL407",
        ),
        ("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB", "TL201"),
        ("train.py: error: unrecognized arguments: --local-rank=0", "TL506"),
        ("one of the variables needed for gradient computation has been modified by an inplace operation", "TL613"),
        ("AttributeError: module 'torch' has no attribute 'rfft'", "TL901"),
        ("ImportError: cannot import name 'inf' from 'torch._six'", "TL901"),
        ('TypeError: ReduceLROnPlateau.__init__() got an unexpected keyword argument "verbose"', "TL902"),
    ],
)
def test_the_rules_behind_an_error_message(lint: Any, message: str, code: str) -> None:
    output = lint("rule", "--error", message).stdout
    assert output.splitlines()[1].split()[0] == code
    (first, *_) = json.loads(lint("rule", "--error", message, "--output-format", "json").stdout)
    assert first["codes"][0] == code
    assert output.startswith(first["remedy"])
    assert f"trainlint check --select {code}" in output


def test_the_error_message_from_standard_input(lint: Any) -> None:
    traceback = (
        'Traceback (most recent call last):\n  File "train.py", line 3\nRuntimeError: received 0 items of ancdata\n'
    )
    assert "TL319" in lint("rule", "--error", "-", stdin=traceback).stdout


def test_an_error_message_that_no_rule_is_known_for(lint: Any) -> None:
    result = lint("rule", "--error", "ZeroDivisionError: division by zero")
    assert result.exit_code == 2
    assert "no rule is known for this message" in result.stderr
    assert json.loads(lint("rule", "--error", "division by zero", "--output-format", "json").stdout) == []


def test_known_errors_name_rules_that_are_there() -> None:
    from trainlint.rules.errors import known_errors
    from trainlint.rules.registry import index

    assert {code for error in known_errors() for code in error.codes} <= set(index())
