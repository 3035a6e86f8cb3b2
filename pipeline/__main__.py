"""`python -m pipeline`: the same commands, where no script of them is on PATH."""

from runpy import run_module

run_module("stages.cli", run_name="__main__", alter_sys=True)
