"""Endurance campaign: no data loss, the same bytes after any interruption, no crash and no hang.

`python -m bench.endurance kills|faults|files|all`. Read `kills` first. `commands` has the tested
commands, `running` starts them, and `evidence` counts results and keeps failures. `faults` injects
system faults, and `readers` lists the readers of files that `damage` has modified.
"""
