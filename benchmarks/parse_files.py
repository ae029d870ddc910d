"""The yardstick: `ast.parse` of every Python file under a folder that mentions torch, and nothing else.

python parse_files.py FOLDER
"""

from __future__ import annotations

import ast
import os
import sys
import warnings


def main(folder: str) -> None:
    warnings.simplefilter("ignore")
    for place, _, names in os.walk(folder):
        for name in names:
            if name.endswith(".py"):
                with open(os.path.join(place, name), "rb") as file:
                    data = file.read()
                if b"torch" in data:
                    try:
                        ast.parse(data)
                    except (SyntaxError, ValueError):
                        pass


if __name__ == "__main__":
    main(sys.argv[1])
