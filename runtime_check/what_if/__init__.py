"""What-if: each candidate of `--try` applied to the user's own run, and measured. No finding is needed.

`candidates` makes questions of what the observing pass saw, `compare` measures them, `rows` ranks the answers, `edits`
says which lines would change. `batch_size` and `predict` are the two searches beside it.
"""
