"""Files of generated captions in COCO's result format: image id and caption.

NAME.jsonl has one line per image with all details; NAME.json is an array of `image_id` and
`caption`, which COCO's programs read. NAME.provenance.json next to it has the provenance.
"""

from codecs import BOM_UTF8
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from pipeline.datasets.checks import check_caption
from pipeline.language import LanguageError
from pipeline.language.captioning.captions import Caption
from pipeline.store.files import require_folder, write_json, write_text
from pipeline.store.hashing import canonical_json
from pipeline.store.schema import SchemaError, decode, decode_lines


@dataclass(frozen=True)
class Described:
    """Result for one image."""

    image: str  # id, or file as it was passed
    captions: tuple[Caption, ...] = ()  # the best first; () on failure
    error: str = ""  # reason for a missing caption

    @property
    def text(self) -> str:
        """The best caption, or ""."""
        return self.captions[0].text if self.captions else ""


def write_captions(
    file: str | Path, described: Sequence[Described], provenance: Mapping[str, Any]
) -> None:
    """Write the captions of all images and their provenance, each file atomically."""
    file = Path(file)
    require_captions_file(file)
    if file.suffix == ".json":
        # As in COCO's own files: no entry without a caption, and an id of digits is a number.
        results = [
            {"image_id": int(d.image) if d.image.isdecimal() else d.image, "caption": d.text}
            for d in described
            if d.captions
        ]
        write_json(file, results)
    else:
        write_text(file, "".join(f"{canonical_json(as_json(d))}\n" for d in described))
    write_json(provenance_of(file), dict(provenance))


def require_captions_file(file: Path) -> None:
    """Check that captions can be written to a file of this name."""
    if file.suffix not in (".json", ".jsonl"):
        raise LanguageError(
            f"{file} ends in {file.suffix or 'nothing'}; use .jsonl for all details of each image, "
            "or .json for COCO's array of results"
        )
    require_folder(file.parent)


def provenance_of(file: Path) -> Path:
    """Return the path of the provenance of a file of captions."""
    return file.with_suffix(".provenance.json")


def as_json(described: Described) -> dict[str, Any]:
    """Return the line of an image: `image_id`, and `caption` with scores or `error`."""
    if not described.captions:
        return {"image_id": described.image, "error": described.error}
    best, *others = (
        {"caption": c.text, "score": round(c.score, 6)}
        | {name: round(value, 6) for name, value in c.parts.items()}
        for c in described.captions
    )
    return {"image_id": described.image, **best} | ({"others": others} if others else {})


def from_json(line: Mapping[str, Any]) -> Described:
    """Return the result of a line written by `as_json`."""
    if "error" in line:
        return Described(line["image_id"], error=line["error"])
    best = {k: v for k, v in line.items() if k not in ("image_id", "others")}
    captions = tuple(
        Caption(
            values["caption"],
            values["score"],
            {k: v for k, v in values.items() if k not in ("caption", "score")},
        )
        for values in (best, *line.get("others", ()))
    )
    return Described(line["image_id"], captions)


def read_captions(file: str | Path) -> dict[str, str | None]:
    """Load captions by image id from a file in COCO's format; None for a line with an error."""
    file = Path(file)
    try:
        data = file.read_bytes().removeprefix(BOM_UTF8)
    except FileNotFoundError:
        raise LanguageError(f"{file}: no such file; `pipeline caption` writes one") from None
    captions: dict[str, str | None] = {}
    try:
        if data.lstrip().startswith(b"["):
            entries, unit = decode(data, list[_Entry]), "entry"
        else:
            entries, unit = list(decode_lines(data.splitlines(), _Entry)), "line"
    except SchemaError as error:
        raise LanguageError(
            f"{file}: {error}; expected objects with image_id and caption, as in COCO's results, "
            "in an array or one per line"
        ) from None
    for number, entry in enumerate(entries, 1):
        where, image = f"{file}: {unit} {number}", str(entry.image_id)
        if image in captions:
            raise LanguageError(f"{where}: image {image!r} has a caption already")
        if entry.caption is None and entry.error is None:
            raise LanguageError(f"{where}: neither a caption nor an error")
        if entry.caption and (defect := check_caption(entry.caption)):
            raise LanguageError(f"{where}: the caption {defect}")
        captions[image] = entry.caption
    if not any(caption is not None for caption in captions.values()):
        raise LanguageError(f"{file} has no caption")
    return captions


def read_described(file: str | Path) -> list[Described]:
    """Load the captions of NAME.jsonl with all candidates, as `write_captions` wrote them."""
    file = Path(file)
    read_captions(file)  # one caption or error per image
    described: list[Described] = []
    for number, line in enumerate(file.read_bytes().splitlines(), 1):
        try:
            described.append(from_json(decode(line, dict[str, Any])))
        except (SchemaError, KeyError, TypeError, AttributeError):
            raise LanguageError(
                f"{file}: line {number} is not one of `pipeline caption`; expected image_id, "
                "caption, score and others"
            ) from None
    return described


class _Entry(msgspec.Struct):
    image_id: int | str
    caption: str | None = None
    error: str | None = None


def read_provenance(file: str | Path) -> dict[str, Any]:
    """Return the provenance of a file of captions; {} without a provenance file."""
    path = provenance_of(Path(file))
    try:
        return decode(path.read_bytes(), dict[str, Any])
    except FileNotFoundError:
        return {}
    except SchemaError as error:
        raise LanguageError(f"{path} is damaged ({error}); generate the captions again") from None
