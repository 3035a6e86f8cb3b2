"""Files of generated captions, in the format of COCO's results: an image id and a caption each.

NAME.jsonl has a line an image with all that is known; NAME.json has what COCO's own programs read,
one array of `image_id` and `caption` alone. NAME.provenance.json beside says what made them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from pipeline.datasets.checks import check_caption
from pipeline.files import require_folder, write_json, write_text
from pipeline.hashing import canonical_json
from pipeline.language import LanguageError
from pipeline.language.captioning.captions import Caption
from pipeline.schema import SchemaError, decode, decode_lines


@dataclass(frozen=True)
class Described:
    """What became of one image.

    Attributes
    ----------
    image : its id, or its file as it was given.
    captions : the best first; () if there is none.
    error : why there is none, or "".
    """

    image: str
    captions: tuple[Caption, ...] = ()
    error: str = ""

    @property
    def text(self) -> str:
        """The best caption, or "" if there is none."""
        return self.captions[0].text if self.captions else ""


def write_captions(
    file: str | Path, described: Sequence[Described], provenance: Mapping[str, Any]
) -> None:
    """Write captions and their provenance, each file whole or not at all.

    In NAME.json an image without a caption has no entry, and an id of digits is a number, as in
    COCO's own files.

    Parameters
    ----------
    file : NAME.jsonl or NAME.json.
    described : every image once, in order.
    provenance : what made the captions, as JSON values.

    Raises
    ------
    LanguageError
        The file has another ending.
    """
    file = Path(file)
    require_captions_file(file)
    if file.suffix == ".json":
        found = [
            {"image_id": int(d.image) if d.image.isdecimal() else d.image, "caption": d.text}
            for d in described
            if d.captions
        ]
        write_json(file, found)
    else:
        write_text(file, "".join(f"{canonical_json(as_json(d))}\n" for d in described))
    write_json(provenance_of(file), dict(provenance))


def require_captions_file(file: Path) -> None:
    """Check, before the work, that captions can be written to a file of this name.

    Raises
    ------
    LanguageError, OutputError
    """
    if file.suffix not in (".json", ".jsonl"):
        raise LanguageError(
            f"{file} ends in {file.suffix or 'nothing'}; give a name in .jsonl, for all that is "
            "known of each image, or in .json, for COCO's array of results"
        )
    require_folder(file.parent)


def provenance_of(file: Path) -> Path:
    """Return the file that says what made a file of captions."""
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
    """Return what `as_json` made a line of."""
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
    """Read the captions of anybody's file in COCO's format, an array or a line each.

    Returns
    -------
    dict
        By image id, as text, the caption, or None where a line says why there is none.

    Raises
    ------
    LanguageError
        The file is missing or damaged, names an image twice, or holds no caption.
    """
    file = Path(file)
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        raise LanguageError(f"{file}: no such file; `pipeline caption` writes one") from None
    found: dict[str, str | None] = {}
    try:
        if data.lstrip().startswith(b"["):
            entries, unit = decode(data, list[_Entry]), "entry"
        else:
            entries, unit = list(decode_lines(data.splitlines(), _Entry)), "line"
    except SchemaError as error:
        raise LanguageError(
            f"{file}: {error}; objects with image_id and caption, as COCO's results have, were "
            "expected, in an array or one per line"
        ) from None
    for number, entry in enumerate(entries, 1):
        where, image = f"{file}: {unit} {number}", str(entry.image_id)
        if image in found:
            raise LanguageError(f"{where}: image {image!r} has a caption already")
        if entry.caption is None and entry.error is None:
            raise LanguageError(f"{where}: neither a caption nor an error")
        if entry.caption and (fault := check_caption(entry.caption)):
            raise LanguageError(f"{where}: the caption {fault}")
        found[image] = entry.caption
    if not any(caption is not None for caption in found.values()):
        raise LanguageError(f"{file} holds no caption")
    return found


class _Entry(msgspec.Struct):
    image_id: int | str
    caption: str | None = None
    error: str | None = None


def read_provenance(file: str | Path) -> dict[str, Any]:
    """Return what made a file of captions; {} if nothing lies beside it that says so.

    Raises
    ------
    LanguageError
        It is damaged.
    """
    beside = provenance_of(Path(file))
    try:
        return decode(beside.read_bytes(), dict[str, Any])
    except FileNotFoundError:
        return {}
    except SchemaError as error:
        raise LanguageError(f"{beside} is damaged ({error}); make the captions again") from None
