"""The generated pages are those of the rules as they are now."""

from __future__ import annotations

import re
from pathlib import Path

from trainlint import docs
from trainlint.rules.registry import index, load


def test_the_pages_are_current() -> None:
    assert docs.stale() == [], f"run: {docs.COMMAND}"


def test_every_rule_has_a_page_and_a_row_in_the_index() -> None:
    pages = docs.pages()
    for code, entry in index().items():
        page = pages[f"rules/{code}.md"]
        assert page.startswith(f"# {code} {entry.name}\n\nLevel: **{entry.level.label}** · ")
        assert "\n## Why is this bad?\n" in page
        assert f"| [{code}]({code}.md) | {entry.name} | {entry.level.label} |" in pages["rules/index.md"]


def test_links_lead_to_pages() -> None:
    pages = docs.pages()
    for name, text in pages.items():
        for target in re.findall(r"\]\(((?:rules/)?\w+\.md)\)", text):
            assert (Path(name).parent / target).as_posix() in pages


def test_what_is_stale_is_named_and_written(tmp_path: Path) -> None:
    docs.write(tmp_path)
    assert docs.stale(tmp_path) == []
    (tmp_path / "rules" / "TL101.md").write_text("old", encoding="utf-8")
    (tmp_path / "rules" / "TL999.md").write_text("a rule that is gone", encoding="utf-8")
    (tmp_path / "errors.md").unlink()
    assert docs.stale(tmp_path) == ["errors.md", "rules/TL101.md", "rules/TL999.md"]
    assert docs.write(tmp_path) == ["errors.md", "rules/TL101.md", "rules/TL999.md"]
    assert docs.stale(tmp_path) == []
    assert not (tmp_path / "rules" / "TL999.md").exists()


def test_pages_have_plain_line_ends(tmp_path: Path) -> None:
    docs.write(tmp_path)
    for path in tmp_path.rglob("*.md"):
        data = path.read_bytes()
        assert b"\r" not in data
        assert data.endswith(b"\n")
        assert not data.endswith(b"\n\n")


def test_fix_safety_is_that_of_the_docstring() -> None:
    assert docs.fix_safety(load("TL000")) == "none"
    assert docs.fix_safety(load("TL104")) == "none"
    assert docs.fix_safety(load("TL202")) == "safe"
    assert docs.fix_safety(load("TL101")) == "unsafe"
    assert docs.fix_safety(load("TL107")) == "safe or unsafe"
