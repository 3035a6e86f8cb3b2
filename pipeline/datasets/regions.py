"""Reading the phrases and boxes of a prepared dataset, from the `regions.jsonl` in its folder."""

from pathlib import Path

from pipeline.datasets.checks import DatasetError
from pipeline.datasets.manifest import DATASET_FILE, REGIONS_FILE, read_manifest
from pipeline.datasets.phrases import RegionPhrase
from pipeline.datasets.source import read_lines
from pipeline.files import parse_json
from pipeline.hashing import sha256_of_file


def read_phrases(dataset: str | Path, split: str | None = None) -> tuple[RegionPhrase, ...]:
    """Return the phrases of a dataset, or of one split, in the order of their file.

    Parameters
    ----------
    dataset : folder of a prepared dataset.
    split : only phrases of this split's images; None: of all.

    Raises
    ------
    DatasetError
        The dataset has no phrases with boxes, no such split, or its file is not the one that
        `dataset.json` describes.
    """
    path = _checked_file(Path(dataset))
    images = {entry.id for entry in read_manifest(dataset).select(split)}
    phrases = []
    for number, line in read_lines(path):
        try:
            phrase = RegionPhrase.from_json(parse_json(line))
        except (KeyError, IndexError, TypeError, ValueError, OverflowError) as error:
            raise DatasetError(
                f"{path}, line {number}: no phrase with boxes ({error!r}); prepare the dataset "
                "again"
            ) from error
        if phrase.image in images:
            phrases.append(phrase)
    return tuple(phrases)


def has_phrases(dataset: str | Path) -> bool:
    """Return whether a prepared dataset has phrases with boxes."""
    try:
        return "regions_sha256" in parse_json((Path(dataset) / DATASET_FILE).read_text("utf-8"))
    except (OSError, TypeError, ValueError):
        return False


def regions_sha256(dataset: str | Path) -> str:
    """Return the SHA-256 of a dataset's `regions.jsonl`, checked.

    Raises
    ------
    DatasetError
        See `read_phrases`.
    """
    return sha256_of_file(_checked_file(Path(dataset)))


def _checked_file(folder: Path) -> Path:
    path, described = folder / REGIONS_FILE, folder / DATASET_FILE
    name = read_manifest(folder).name
    wanted = parse_json(described.read_text(encoding="utf-8")).get("regions_sha256")
    if wanted is None:
        raise DatasetError(
            f"{folder}: the dataset {name!r} has no phrases with boxes; `pipeline prepare "
            "entities`, `regions`, `coco --boxes` and `scenes` make datasets that have them"
        )
    if not path.is_file() or sha256_of_file(path) != wanted:
        raise DatasetError(
            f"{path} is not the file that {described} describes (its SHA-256 is not "
            f"{str(wanted)[:16]}...): it was changed, or its preparation was interrupted; "
            "prepare it again"
        )
    return path
