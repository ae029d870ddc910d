"""The names that advice invents: none of them was ever there, and what is put in their place is."""

from __future__ import annotations

from trainlint import torch_api


def test_no_release_has_an_invented_name() -> None:
    found = {name: torch_api.lookup(name) for name in torch_api.inventions()}
    assert [name for name, there in found.items() if there.first is not None or there.open] == []


def test_what_is_put_in_its_place_exists() -> None:
    newest = torch_api.versions()[-1]
    wrong = [
        (name, instead)
        for name, invention in torch_api.inventions().items()
        for instead in invention.instead
        if torch_api.lookup(instead).at(newest) is not True
    ]
    assert wrong == []


def test_each_says_what_to_do() -> None:
    rows = torch_api.inventions()
    assert [name for name, row in rows.items() if not row.instead and not row.note] == ["torch.string"]
    assert rows["torch.fx.optimize"].instead == ("torch.compile",)
    assert rows["torch.optimize"].instead == ("torch.compile",)
    assert rows["torch.cuda.clear_cache"].instead == ("torch.cuda.empty_cache",)
