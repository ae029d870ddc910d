"""Which edits go together, and the check that nothing else has changed."""

from __future__ import annotations

from trainlint.edits import Patch, apply, is_clean

TEXT = "import torch\nx = f(1)\ny = g(2)\n"


def patch(*changes: tuple[int, int, str], code: str = "TL106") -> Patch:
    return Patch(code, 1, "", changes)


def test_patches_that_touch_wait_for_the_next_round() -> None:
    end = TEXT.index(")")
    first, second, far = (
        patch((end, end, ", a=1")),
        patch((end, end, ", b=2")),
        patch((len(TEXT) - 2, len(TEXT) - 2, "0")),
    )
    done = apply(TEXT, [first, second, far])
    assert done.text == "import torch\nx = f(1, a=1)\ny = g(20)\n"
    assert done.left == (second,)


def test_a_row_is_not_added_among_rows_that_are_indented_in_the_same_round() -> None:
    text = "for x in f(\n    1\n):\n    g(x)\nh(\n    2,\n)\n"
    under = patch((0, 0, "with n():\n    "), (12, 12, "    "), (18, 18, "    "), (25, 25, "    "), code="TL201")
    within, below = patch((17, 17, ",\n    a=1")), patch((39, 39, "\n    3,"))
    for patches in ([under, within, below], [within, under, below]):
        done = apply(text, patches)
        assert set(done.left) == {patches[1]} and below in done.done
    assert apply(text, [under]).text == "with n():\n    for x in f(\n        1\n    ):\n        g(x)\nh(\n    2,\n)\n"


def test_the_same_import_is_added_once() -> None:
    line = (0, 0, "import copy\n")
    one, other = patch(line, (19, 20, "copy.copy(1)")), patch(line, (28, 29, "copy.copy(2)"))
    done = apply(TEXT, [one, other])
    assert done.text == "import copy\nimport torch\nx = f(copy.copy(1))\ny = g(copy.copy(2))\n"
    assert done.done == (one, other)


def test_a_patch_that_breaks_the_file_is_dropped_and_the_others_are_not() -> None:
    end = TEXT.index(")")
    good, bad = patch((end, end, ", a=1")), patch((len(TEXT) - 2, len(TEXT) - 2, "("))
    done = apply(TEXT, [good, bad])
    assert done.dropped == (bad,)
    assert done.text == "import torch\nx = f(1, a=1)\ny = g(2)\n"


def test_a_change_beyond_its_statement_is_seen() -> None:
    assert is_clean(TEXT, TEXT.replace("f(1)", "f(2)"), [(19, 20, "2")])
    assert not is_clean(TEXT, "import torch\nif x:\n    x = f(1)\n    y = g(2)\n", [(13, 13, "if x:\n    ")])
    assert not is_clean(TEXT, "import torch\nx = '''f(1)\ny = g(2)\n'''\n", [(17, 17, "'''")])


def test_a_decorator_that_is_added_to_the_first_statement_of_a_block_is_clean() -> None:
    text = "try:\n    def f():\n        pass\nfinally:\n    pass\n"
    at = text.index("def")
    done = apply(text, [patch((at, at, "@torch.no_grad()\n    "))])
    assert not done.dropped
    assert done.text.startswith("try:\n    @torch.no_grad()\n    def f():")
