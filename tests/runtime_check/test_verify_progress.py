"""What is shown while `verify` runs, where nobody can see a bar move: one line for each thing that is done."""

from __future__ import annotations

import io

import verify_runs  # noqa: F401  (puts the checkout on the path)

from runtime_check.report.terminal import progress


def test_each_pass_and_each_comparison_is_told_once() -> None:
    stream = io.StringIO()
    with progress(stream) as show:
        for done in (0, 12, 25):
            show("timing", 4, 2, done, 25)
        for title in ("toggle: AMP (bfloat16), fused SGD", "pairs: num_workers=2"):
            for done in (0, 1, 2):
                show(title, 0, 0, done, 8)
    assert stream.getvalue().splitlines() == [
        "verify: pass 2 of 4 (timing), 25 steps",
        "verify: toggle: AMP (bfloat16), fused SGD (1 of 8 at most)",
        "verify: pairs: num_workers=2 (1 of 8 at most)",
    ]
