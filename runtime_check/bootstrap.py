"""Run a script with the probe where the interpreter is told to ignore its environment (`python -I`, `-E`, frozen
builds).

`python bootstrap.py train.py args...`, `-m module args...` or `-c code args...`: standard library only. `__main__` is
the script's as far as `runpy` can make it so; prefer the injection by `sitecustomize`, which needs none of this.
"""

from __future__ import annotations

import os
import runpy
import sys


def main() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    if "_trainlint_probe" not in sys.modules:
        runpy.run_path(os.path.join(here, "inject", "sitecustomize.py"))
    kind = sys.argv[1]
    named = kind in ("-m", "-c")
    sys.argv[:] = sys.argv[2:] if named else sys.argv[1:]
    if sys.path[:1] == [here]:  # -I puts no folder in front of the path, and then none belongs there
        sys.path[0] = "" if named else os.path.dirname(os.path.abspath(kind))
    if kind == "-m":
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    elif kind == "-c":
        code, sys.argv[0] = sys.argv[0], "-c"
        exec(compile(code, "<string>", "exec"), sys.modules["__main__"].__dict__)
    else:
        runpy.run_path(kind, run_name="__main__")


if __name__ == "__main__":
    main()
