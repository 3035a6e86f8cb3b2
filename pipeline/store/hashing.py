"""Canonical JSON, SHA-256 of values and files, and CRC-32."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

try:
    # Ten times as fast as zlib's (extra `fast`).
    from isal.isal_zlib import crc32 as crc32
except ImportError:
    from zlib import crc32 as crc32

_BLOCK = 1 << 20
_TEXTS_AT_ONCE = 1 << 14


def canonical_json(value: Any) -> str:
    """Return the canonical JSON of `value`: sorted keys, no spaces, unescaped UTF-8, no NaN."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def sha256_of_json(value: Any) -> str:
    """Return the SHA-256 (64 hex digits) of the canonical JSON of `value`."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def sha256_of_texts(texts: Iterable[str]) -> str:
    """Return `sha256_of_json` of a list of texts, read in bounded memory."""
    digest = hashlib.sha256(b"[")
    remaining = iter(texts)
    between = ""
    while chunk := list(islice(remaining, _TEXTS_AT_ONCE)):
        digest.update((between + canonical_json(chunk)[1:-1]).encode())
        between = ","
    digest.update(b"]")
    return digest.hexdigest()


def recipe_hash(recipe: dict[str, Any], weights_sha256: str) -> str:
    """Return 16 hex digits that identify the features of a recipe and of weights (by SHA-256)."""
    return sha256_of_json({**recipe, "weights_sha256": weights_sha256})[:16]


def sha256_of_file(path: Path) -> str:
    """Return the SHA-256 (64 hex digits) of a file's bytes."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def chosen(ids: Sequence[str], number: int, seed: int) -> list[str]:
    """Return `number` of the ids, or all if fewer: the first by SHA-256 of seed and id."""
    # Independent of the order of `ids`, so that all experiments of a split show the same ones.
    return sorted(ids, key=lambda k: hashlib.sha256(f"{seed}:{k}".encode()).digest())[:number]
