"""Selection of the damage to a file, by its format and a seed."""

from collections.abc import Callable
from pathlib import Path

from bench.endurance.damage.arrays import npy, safetensors, zip_member
from bench.endurance.damage.hdf5 import hdf5
from bench.endurance.damage.json_values import json_line, json_value, nested
from bench.endurance.damage.markup import xml, yaml
from bench.endurance.damage.raw import Random, any_bytes, empty, field, lines, noise, other_kind


def damage(rng: Random, path: Path, other: bytes) -> str:
    """Damage a file in place; return a description (see `damaged_bytes`)."""
    changed, how = damaged_bytes(rng, path.suffix, path.read_bytes(), other)
    path.write_bytes(changed)
    return how


def damaged_bytes(rng: Random, suffix: str, data: bytes, other: bytes) -> tuple[bytes, str]:
    """Return the damaged content of a file, and a description.

    Parameters
    ----------
    rng : random generator.
    suffix : of the file; selects the damage that fits its format.
    data : content of the file.
    other : bytes of another file, for splicing.
    """
    special = [by for suffixes, by in _SPECIAL if suffix.lower() in suffixes]
    for _ in range(1 if rng.random() < 0.7 else 2):
        how = rng.choice(special) if special and rng.random() < 0.6 else rng.choice(_ANY)
        try:
            data = how(rng, data, other)
        except Exception:  # already too damaged for this kind of damage
            how, data = any_bytes, any_bytes(rng, data or b"x", other)
    return data, how.__name__


Damage = Callable[[Random, bytes, bytes], bytes]
_ANY: tuple[Damage, ...] = (*[any_bytes] * 5, empty, noise, other_kind)
_TEXT: tuple[Damage, ...] = (field, field, lines)
_SPECIAL: tuple[tuple[tuple[str, ...], Damage], ...] = (
    *(((".json",), by) for by in (json_value, json_value, json_value, nested, field)),
    *(((".jsonl",), by) for by in (json_line, json_line, json_line, nested, *_TEXT)),
    *(((".csv", ".tsv", ".txt", ".vec", ".token", ".gt", ".testingset"), by) for by in _TEXT),
    *(((".xml",), by) for by in (xml, xml, *_TEXT)),
    *(((".yaml",), by) for by in (yaml, yaml, nested, *_TEXT)),
    ((".safetensors",), safetensors),
    ((".npy",), npy),
    ((".npz", ".zip"), zip_member),
    ((".h5",), hdf5),
)
