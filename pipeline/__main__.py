"""`python -m pipeline`: the same commands, where no script of them is on PATH."""

from runpy import run_module

if __name__ == "__main__":
    run_module("stages.cli", run_name="__main__", alter_sys=True)
