"""The index of rules, and what every rule must have."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from trainlint.findings import Claim, Level
from trainlint.rules import registry
from trainlint.rules.rule import Rule

RULES = registry.find_rules()


def test_the_index_is_current() -> None:
    current = Path(registry.INDEX).read_text(encoding="utf-8")
    assert current == registry.render_index(), "run: python -m trainlint.rules.registry"


def test_a_rule_is_loaded_by_its_code() -> None:
    assert [registry.load(code).code for code in registry.index()] == [rule.code for rule in RULES]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_every_rule_is_complete(rule: Rule) -> None:
    assert isinstance(rule.level, Level)
    assert isinstance(rule.claim, Claim)
    assert rule.name == rule.name.lower()
    assert " " not in rule.name
    page = inspect.cleandoc(rule.__doc__ or "")
    assert page.partition("\n")[0].endswith(".")
    assert "\n## Why is this bad?\n" in page
    for line in (rule.message, rule.why, rule.help):
        assert line
        assert "\n" not in line
    module = type(rule).__module__.rpartition(".")[2]
    assert module == f"{rule.code.lower()}_{rule.name.replace('-', '_')}"
    assert all(group and all(isinstance(part, bytes) for part in group) for group in rule.triggers)
    assert all(word.replace(b"_", b"").isalnum() for word in rule.near)


def test_triggers_are_groups_of_which_one_must_stand_in_the_file() -> None:
    entry = registry.Entry("TL999", "x", Level.ADVICE, Claim.NONE, ((b"a", b"b"), (b"c",)), "m", False)
    assert entry.may_hit(b"b a")
    assert entry.may_hit(b"c")
    assert not entry.may_hit(b"a")
    assert entry._replace(triggers=()).may_hit(b"")


def test_two_rules_in_one_file_or_a_wrong_code_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    head = "from trainlint.rules.rule import Rule\n"
    (tmp_path / "tl998_none.py").write_text(head)
    (tmp_path / "tl997_other.py").write_text(head + "class A(Rule):\n    code = 'TL996'\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(TypeError, match="must define one rule, not 0"):
        registry.find_rules(["tl998_none"])
    with pytest.raises(TypeError, match="must define TL997, not TL996"):
        registry.find_rules(["tl997_other"])
