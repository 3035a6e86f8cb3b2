"""A campaign against the promises: nothing lost, the same bytes after any end, no crash, no hang.

`python -m bench.endurance kills|faults|files|all`. Read `kills` first; `commands` states which
commands are tried, `running` how they are started, `evidence` what is counted and kept. `faults`
lists what a system does to commands, `readers` what reads files that `damage` has changed.
"""
