"""Verification of shards in child processes, where rows come as fast as a GPU computes them.

Two hashes of each row need more of the interpreter's time than all else that happens to it here.
"""

import json
from typing import Any

import msgspec

from pipeline.store.errors import PipelineError
from pipeline.store.jobs.child_processes import ChildDied, ChildProcesses, answering
from pipeline.store.schema import decode
from pipeline.store.shards.format import DamagedShard, ShardEntry, ShardError
from pipeline.store.shards.reader import ShardFile


class InspectingProcesses:
    """`ShardFile.inspect` in child processes, which end with this object."""

    def __init__(self) -> None:
        self._children = ChildProcesses(f"{__name__}:answer")

    def __call__(self, shard: ShardFile, first_row: int) -> ShardEntry:
        """Verify every byte of a shard; return its index entry."""
        try:
            with self._children.one() as child:
                child.send([str(shard.path), first_row])
                reply: dict[str, Any] = child.reply()
        except ChildDied as died:
            raise PipelineError(
                f"the process that verifies shards ended with {died} while it read "
                f"{shard.path}; finished rows are kept: check the memory of the machine, and run "
                "the same command again"
            ) from None
        if "damaged" in reply:
            raise DamagedShard(reply["damaged"])
        if "failed" in reply:
            raise ShardError(reply["failed"])
        return decode(json.dumps(reply), ShardEntry)


def answer() -> None:
    """Verify the shards that stdin names, until it ends."""
    given, out = answering()
    given.readline()  # every child has a first line
    for line in given:
        path, first_row = json.loads(line)
        try:
            reply = msgspec.to_builtins(ShardFile(path).inspect(first_row))
        except DamagedShard as error:
            reply = {"damaged": str(error)}
        except ShardError as error:
            reply = {"failed": str(error)}
        except OSError as error:  # while the file is hashed
            reply = {"failed": f"{path} cannot be read ({error.strerror}); check the disk"}
        out.write(json.dumps(reply).encode() + b"\n")
        out.flush()
