"""Training of networks.

Read `task` first: what a head fills in. `trainer` has the loop, which is the same for all, and
`checkpoints` the state after each epoch, from which a killed training goes on. No architecture and
no loss lives here.
"""
