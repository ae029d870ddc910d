"""The identity of a finding: what stays the same when lines above it come and go.

Of code, path below the project, qualified name of the enclosing function or class, text of the statement with white
space folded, and the ordinal among findings that agree in all of these. Used by the baseline, SARIF, GitLab and
`verify`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from trainlint.findings import Finding

LENGTH = 20  # hexadecimal digits


def with_fingerprints(findings: Iterable[Finding], project: str) -> list[Finding]:
    """`findings` are those of one file, in source order, before any of them is ignored or suppressed."""
    from trainlint.hashing import blake2b

    seen: dict[str, int] = {}
    done: list[Finding] = []
    for finding in findings:
        parts = (finding.code, _below(project, finding.path), finding.scope, " ".join(finding.statement.split()))
        key = "\0".join(parts)
        ordinal = seen[key] = seen.get(key, -1) + 1
        digest = blake2b(f"{key}\0{ordinal}".encode("utf-8", "surrogatepass"), digest_size=LENGTH // 2)
        done.append(finding._replace(fingerprint=digest.hexdigest()))
    return done


def _below(project: str, path: str) -> str:
    try:
        relative = os.path.relpath(path, project)
    except ValueError:  # another drive
        relative = path
    return relative.replace(os.sep, "/")
