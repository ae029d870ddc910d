"""Comparisons: one change applied to the user's own run, and the run measured with and without it.

Data flows one way: findings -> `proposals` -> `budget` -> a design (`toggle`, `pairs`, `sequential`, `memory`) -> replicates ->
`verdicts`. `comparing.compare` is the whole of it; `records` holds what passes between.
"""
