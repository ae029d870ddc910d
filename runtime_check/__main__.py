"""`python -m runtime_check --cmd "python train.py"`: the measuring half on its own, without trainlint."""

from __future__ import annotations

import sys

from runtime_check.commandline import main

sys.exit(main(sys.argv[1:]))
