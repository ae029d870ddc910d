"""Run a script with the probe where the interpreter is told to ignore its environment (`python -I`, `-E`, frozen
builds).

`python bootstrap.py train.py args...`: standard library only. `__main__` is the script's as far as `runpy` can make
it so; prefer the injection by `sitecustomize`, which needs none of this.
"""

from __future__ import annotations

import os
import runpy
import sys


def main() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    if "_trainlint_probe" not in sys.modules:
        runpy.run_path(os.path.join(here, "inject", "sitecustomize.py"))
    script = sys.argv[1]
    sys.argv[:] = sys.argv[1:]
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
