"""Functions called in a fork of this process, which has imported torch already.

A fresh interpreter takes seconds to import it. Tests of what is imported, of hash seeds and of
command lines start one all the same.
"""

import os
import sys
import traceback
import warnings
from collections.abc import Callable

import pytest
import torch


def exit_of(function: Callable[..., object], *arguments: object) -> int:
    """Return the exit status of a fork that calls a function, or minus the signal that ended it."""
    return exit_of_child(fork(function, *arguments))


def exit_of_child(child: int) -> int:
    """Wait for a fork; return its exit status, or minus the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def fork(function: Callable[..., object], *arguments: object) -> int:
    """Return the process id of a fork that calls a function.

    Its exit status is 1 after an exception, whose traceback is on stderr.
    """
    with warnings.catch_warnings():
        # A process with threads is forked; the child starts its own.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child:
        return child
    status = 1
    try:
        function(*arguments)
        status = 0
    except SystemExit as ended:
        # As `sys.exit` has it: a text is an error.
        status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(status)


def require_training_forks() -> None:
    """Skip the test where a fork cannot train: with a GPU, gradients need threads of its parent."""
    if torch.cuda.is_available():
        pytest.skip("needs no GPU: run it with CUDA_VISIBLE_DEVICES= in the environment")
