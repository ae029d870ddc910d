"""The HTML report in a browser without a window: nothing in its console, nothing asked of the network, plots drawn."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from reports import MEMORY, candidate, recorded, varied, with_candidates, without

pytest.importorskip("jinja2")

from runtime_check.report.html import to_html

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--hide-scrollbars", "--host-resolver-rules=MAP * ~NOTFOUND",
)  # fmt: skip

pytestmark = [
    pytest.mark.chromium,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed (Debian: apt-get install chromium)"),
]

#: Runs in the page: what of each drawing was laid out, and which labels leave it or lie on one another.
PROBE = """
<script>
window.addEventListener("load", () => {
  const drawings = [...document.querySelectorAll("figure svg")].map(svg => {
    const frame = svg.getBoundingClientRect();
    const texts = [...svg.querySelectorAll("text")].map(t => [t.textContent, t.getBoundingClientRect()]);
    const out = texts.filter(([_, r]) => r.left < frame.left - 1 || r.right > frame.right + 1 || r.top < frame.top - 1
      || r.bottom > frame.bottom + 1).map(([said]) => said);
    const over = [];
    texts.forEach(([a, p], n) => texts.slice(n + 1).forEach(([b, q]) => {
      const wide = Math.min(p.right, q.right) - Math.max(p.left, q.left);
      const high = Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top);
      if (wide > 1 && high > 4) over.push([a, b]);
    }));
    return {label: svg.getAttribute("aria-label"), width: frame.width, height: frame.height,
            shapes: svg.querySelectorAll("rect, circle, polygon").length, out, over};
  });
  const wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  const said = document.createElement("pre");
  said.id = "probe";
  said.textContent = JSON.stringify({drawings, wide});
  document.body.append(said);
});
</script>
"""


@dataclass(frozen=True)
class Loaded:
    document: str
    console: list[str]
    requests: list[str]


def load(page: str, folder: Path, *flags: str) -> Loaded:
    """`page` in a new profile. `requests`: addresses that the page itself asked for, not what the browser does by itself."""
    assert CHROMIUM is not None
    path, log = folder / "page.html", folder / "net.json"
    path.write_text(page, encoding="utf-8")
    with tempfile.TemporaryDirectory(dir=folder, ignore_cleanup_errors=True) as profile:
        own = (f"--user-data-dir={profile}", "--enable-logging=stderr", f"--log-net-log={log}")
        done = subprocess.run(
            [CHROMIUM, *FLAGS, *own, *flags, "--dump-dom", path.as_uri()],
            capture_output=True, text=True, timeout=120, check=True,
        )  # fmt: skip
    return Loaded(
        done.stdout, re.findall(r".*CONSOLE.*", done.stderr), list(_requests(log.read_text(encoding="utf-8")))
    )


def _requests(log: str) -> Iterator[str]:
    try:
        events = json.loads(log)
    except ValueError:  # cut off where the browser ended
        events = json.loads(log.rstrip().rstrip(",") + "]}")
    for event in events["events"]:
        params = event.get("params", {})
        address = params.get("url", "")
        if params.get("initiator", "not an origin") != "not an origin" and re.match(r"(https?|wss?|ftp):", address):
            yield address


def probed(page: str, folder: Path, *flags: str) -> dict[str, Any]:
    """What the page looks like, measured from within: the policy that forbids scripts is taken out for that."""
    open_page = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page).replace(
        "</body>", f"{PROBE}</body>"
    )
    document = load(open_page, folder, *flags).document
    found = re.search(r'<pre id="probe">(.*?)</pre>', document, re.DOTALL)
    assert found is not None
    text = found[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    return dict(json.loads(text))


def test_nothing_in_the_console_and_nothing_from_the_network(tmp_path: Path) -> None:
    loaded = load(to_html(varied()), tmp_path)
    assert loaded.console == []
    assert loaded.requests == []
    assert loaded.document.count("<svg") == 7  # six drawings and the patterns


def test_this_would_be_seen(tmp_path: Path) -> None:
    """The two checks above see an error and a request where there is one."""
    page = '<!doctype html><body><img src="http://report.invalid/x.png"><script>console.error("seen")</script></body>'
    loaded = load(page, tmp_path)
    assert len(loaded.console) >= 1
    assert loaded.requests == ["http://report.invalid/x.png"]


@pytest.mark.parametrize("name", ["slow_loader", "cifar", "varied", "many_steps", "half_empty", "only_losses"])
def test_plots_are_drawn_and_labels_stay_apart(name: str, tmp_path: Path) -> None:
    seen = probed(to_html(_report(name)), tmp_path, "--window-size=1000,3000")
    assert len(seen["drawings"]) >= (2 if name == "half_empty" else 5)
    for drawing in seen["drawings"]:
        assert drawing["width"] > 600
        assert drawing["height"] > 50
        assert drawing["shapes"] >= 4
        assert drawing["out"] == [], drawing["label"]
        assert drawing["over"] == [], drawing["label"]


def test_on_a_narrow_screen_the_page_is_as_wide_as_the_screen(tmp_path: Path) -> None:
    assert probed(to_html(varied()), tmp_path, "--window-size=500,3000")["wide"] <= 0
    instead = (
        "with torch.autocast('cuda', dtype=torch.bfloat16):  # around the forward and the loss, not around backward()"
    )
    edits = [{"file": "/project/training/pipeline.py", "line": 1226, "now": None, "instead": instead}]
    tried = with_candidates(candidate("checkpointing the 24 elements of Transformer.blocks", edits=edits, **MEMORY))
    assert probed(to_html(tried), tmp_path, "--window-size=500,3000")["wide"] <= 0


def _report(name: str) -> dict[str, Any]:
    if name == "varied":
        return varied()
    if name == "half_empty":
        return without(recorded("cifar"), "comparisons", "baseline", "loaders", "against")
    if name == "many_steps":
        report = recorded("cifar")
        for series in ("phases", "timed", "memory"):
            one = report["over_time"][series][-3]
            report["over_time"][series] = [{**one, "step": n, "warmup": n < 5, "holds": []} for n in range(2, 302)]
        for n in range(40, 300, 3):
            report["over_time"]["memory"][n]["phase"] = "eval"
            report["over_time"]["phases"][n].update({"ms": 900.0, "loader": 800.0, "holds": ["eval"]})
        return report
    if name == "only_losses":  # what counts lies at the right edge
        report = varied()
        made = [one for one in report["comparisons"]["made"] if (one["effect"] or {}).get("saving", 0) < 0]
        return {**report, "comparisons": {**report["comparisons"], "made": made}}
    return recorded(name)
