"""What "the same" means: canonical JSON and SHA-256, and files that appear whole or not at all."""

import hashlib
import json
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pipeline.errors import PipelineError

_BLOCK = 1 << 20


def canonical_json(value: Any) -> str:
    """Return the one JSON text of `value`: sorted keys, no spaces, UTF-8 unescaped, no NaN."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def sha256_of_json(value: Any) -> str:
    """Return the SHA-256 (64 hex digits) of the canonical JSON of `value`."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def recipe_hash(recipe: dict[str, Any], weights_sha256: str) -> str:
    """Return 16 hex digits that name features of this recipe made with these weights.

    Parameters
    ----------
    recipe : a recipe as JSON values, of images or of captions.
    weights_sha256 : SHA-256 of the weights (or word vectors), 64 hex digits.
    """
    return sha256_of_json({**recipe, "weights_sha256": weights_sha256})[:16]


def sha256_of_file(path: Path) -> str:
    """Return the SHA-256 (64 hex digits) of a file's bytes."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


class OutputError(PipelineError):
    """Results cannot be written where they were asked for."""


def require_folder(path: Path) -> None:
    """Check, before the work, that results can be put into a folder, there already or not.

    Raises
    ------
    OutputError
    """
    existing = next(p for p in (path, *path.absolute().parents) if p.exists())
    if not existing.is_dir():
        raise OutputError(f"{existing} is a file, so {path} cannot be a folder; give another --out")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise OutputError(f"{existing} may not be written to; change that or give another --out")


@contextmanager
def appearing_whole(path: Path) -> Iterator[Path]:
    """Give a fresh `*.part` path to write to, and move it to `path` once it is on the disk.

    The part's name is unique, so two writers of one file never mix; the last rename wins. A
    writer that fails leaves nothing; one that is killed leaves a `*.part` file, never a half
    file under the final name.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{uuid.uuid4().hex[:12]}.part")
    try:
        yield part
        with part.open("rb+") as stream:
            os.fsync(stream.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    _sync_folder(path.parent)


def write_text(path: Path, text: str) -> None:
    """Write `text` to `path` as UTF-8 with `\\n` line ends, whole or not at all."""
    with appearing_whole(path) as part:
        part.write_text(text, encoding="utf-8", newline="\n")


def write_json(path: Path, value: Any) -> None:
    """Write `value` as indented JSON with sorted keys and a final newline, whole or not at all."""
    text = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
    write_text(path, text + "\n")


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
