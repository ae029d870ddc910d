"""What TL301's fix puts under a main guard says the same there: statements, the text of strings, comments, line ends."""

from __future__ import annotations

import ast
import io
import tempfile
import tokenize
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trainlint.discovery import discover
from trainlint.fixing import fix
from trainlint.settings import Configuration

HEAD = """\
import torch
from torch.utils.data import DataLoader
from torchvision.datasets import FakeData
from torchvision.transforms import ToTensor


def train(net, x):
{step}net(x).sum().backward()


"""
RUN = [
    "feed = DataLoader(FakeData(transform=ToTensor()),  # made up\n    8, num_workers=2)",
    "net = torch.nn.LazyLinear(1)",
]
LOOP = "for x, y in feed:\n{step}train(net, x)"
OTHERS = st.sampled_from(
    [
        "value = 'single'",
        'text = """several\n  rows \\\n\n\tof text"""',
        "shown = f'''{value}\n{\n  value!r:>10}\n# no comment'''",
        "joined = 'one \\\n  two'",
        "x = [1,\n  2,  # two\n\n      3,]",
        "if  net:\n{step}pass\nelif feed: pass\nelse:\n{step}for _ in ():\n{step}{step}continue",
        "a = 1; b = 2",
        "total = 1 + \\\n    2",
        "# a note\n# of two rows",
        "\n\n",
        "try:\n{step}net\nexcept (OSError,\n ValueError) as error: print(error); raise",
        "with open('x') as file: print(file.read()); net",
        "mul = lambda *a: (a,\n  '''\n  b''')",
    ]
)


def comments(text: str) -> list[str]:
    found = tokenize.generate_tokens(io.StringIO(text.replace("\r\n", "\n")).readline)
    return [token.string for token in found if token.type == tokenize.COMMENT]


def dumped(body: list[ast.stmt]) -> list[str]:
    return [ast.dump(statement) for statement in body]


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    before=st.lists(OTHERS, max_size=3),
    between=st.lists(OTHERS, max_size=3),
    after=st.lists(OTHERS, max_size=4),
    step=st.sampled_from(["    ", "  ", "\t"]),
    newline=st.sampled_from(["\n", "\r\n"]),
    cut=st.booleans(),
)
def test_it_says_the_same_under_the_guard(
    before: list[str], between: list[str], after: list[str], step: str, newline: str, cut: bool
) -> None:
    run = [*before, RUN[0], *between, RUN[1], LOOP, *after]
    text = (HEAD + "\n".join(run) + "\n").replace("{step}", step)
    text = text.rstrip("\n") if cut else text
    old = ast.parse(text)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / ".git").mkdir()
        (root / "trainlint.toml").write_text('select = ["TL301"]\ntorch-version = "2.5"\n')
        path = root / "train.py"
        path.write_bytes(text.replace("\n", newline).encode())
        done = fix(discover([str(path)], Configuration()), unsafe=True, write=True, progress=lambda results, _: results)
        assert not done.dropped and not done.problems and not done.unsettled
        written = path.read_bytes().decode()
    assert written.count("\n") == written.count(newline)
    fixed = written.replace("\r\n", "\n")
    *outside, guard = ast.parse(fixed).body
    assert isinstance(guard, ast.If)
    assert dumped([*outside, *guard.body]) == dumped(old.body)
    assert "num_workers" in ast.unparse(guard)
    assert comments(fixed) == comments(text)
    assert fixed.endswith("\n") == text.endswith("\n")
