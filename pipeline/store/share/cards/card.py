"""SHARDS.md and croissant.json, the metadata of published shards, generated from their index.

SHARDS.md is a dataset card: its header is in the format of a README.md on the Hugging Face Hub.
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path

from pipeline.datasets.manifest import read_manifest
from pipeline.store.files import write_json, write_text
from pipeline.store.hashing import canonical_json
from pipeline.store.progress import QUIET, Monitor
from pipeline.store.shards.describe import reading_lines
from pipeline.store.shards.feature_set import FeatureSet
from pipeline.store.shards.format import ShardError
from pipeline.store.shards.index import FeatureIndex
from pipeline.store.shards.side_by_side import require_own_rows
from pipeline.store.share.cards.croissant import CROISSANT_FILE, croissant

CARD_FILE = "SHARDS.md"
_FAILURES_SHOWN = 100
# Hub identifiers of licences that are common for images and captions.
_LICENCES = (
    "apache-2.0", "cc-by-2.0", "cc-by-3.0", "cc-by-4.0", "cc-by-nc-2.0", "cc-by-nc-4.0",
    "cc-by-nc-nd-4.0", "cc-by-nc-sa-4.0", "cc-by-nd-4.0", "cc-by-sa-3.0", "cc-by-sa-4.0",
    "cc0-1.0", "mit", "odbl", "pddl",
)  # fmt: skip
_PLAIN = re.compile(r"[\w ,/:;=()'\"?%.-]")


def write_card(
    folder: str | Path,
    *,
    licence: str | None = None,
    dataset: str | Path | None = None,
    monitor: Monitor = QUIET,
) -> Path:
    """Write SHARDS.md and croissant.json into a finished feature folder.

    Parameters
    ----------
    folder : str or Path. Folder of the shards.
    licence : str or None. Licence of the images and captions. None: that of the dataset.
    dataset : str, Path or None. Folder of the prepared dataset, which names its licence and source.
    monitor : Monitor. Receives a log line if the licence is unknown.

    Returns
    -------
    Path
        Path of SHARDS.md.

    Raises
    ------
    ShardError
        The folder is not a finished set with rows of its own.
    DatasetError
        `dataset` is not a prepared dataset.

    Examples
    --------
    >>> pipeline.write_card("features/mine", licence="CC0-1.0").name
    'SHARDS.md'
    """
    manifest = read_manifest(Path(dataset)) if dataset else None
    if manifest:
        licence = licence or manifest.licence
    require_own_rows(folder)
    features = FeatureSet(folder)
    source = manifest.source if manifest else None
    text = card_text(features.index, features.failures(), licence, source)
    path = features.folder / CARD_FILE
    write_text(path, text)
    files = [features.folder / entry.file for entry in features.index.shards]
    sizes = {file.name: file.stat().st_size for file in files}
    about = croissant(features.index, sizes, licence, source)
    write_json(features.folder / CROISSANT_FILE, about)
    if licence is None:
        monitor.log(f"{CARD_FILE} states no licence; pass `dataset=...` or `licence=...`")
    return path


def card_text(
    index: FeatureIndex,
    failures: Sequence[tuple[str, str, str]] = (),
    licence: str | None = None,
    source: str | None = None,
) -> str:
    """Return the card as Markdown; `failures` are (id, status name, reason) of failed rows."""
    for entry in index.shards:
        if not re.fullmatch(r"shard-\d+-of-\d+\.h5", entry.file):
            raise ShardError(f"index.json lists {entry.file!r}, which is not the name of a shard")
    header = index.header
    shape = " x ".join(map(str, header.row_shape))
    contents = index.content_sha256
    lines = [
        *_header(index, licence),
        f"# Features of {_escaped(header.dataset)}",
        "",
        f"{index.rows} rows of {shape} {header.dtype} (axes: {_escaped(header.axes)}), with ids, "
        f"in {len(index.shards)} HDF5 files.",
        "",
        "| | |",
        "|---|---|",
        f"| dataset | {_escaped(header.dataset)} |",
        f"| licence of its images and captions | {_escaped(licence or 'not stated')} |",
        f"| source of its images and captions | {_escaped(source or 'not stated')} |",
        f"| recipe hash | {header.recipe_hash} |",
        f"| weights | {_escaped(header.weights)} |",
        f"| SHA-256 of the weights | {_escaped(header.weights_sha256)} |",
        f"| weights trained on | {_escaped(', '.join(header.trained_on) or 'not stated')} |",
        f"| software | {_escaped(header.created_by)} |",
        f"| rows | {index.rows} |",
        f"| failed rows | {index.failed_rows} |",
        "",
        "## Recipe",
        "",
        "Everything that changes a feature:",
        "",
        "| field | value |",
        "|---|---|",
        *(
            f"| {_escaped(name)} | "
            f"{_escaped(value if isinstance(value, str) else canonical_json(value))} |"
            for name, value in sorted(header.recipe.items())
        ),
        "",
        *_failed_rows(index, failures),
        "## Reading",
        "",
        "Rows with a status other than 0 hold NaN.",
        "",
        "```python",
        *reading_lines(index.shards[0].file),
        "```",
        "",
        "## Checksums",
        "",
        "| file | first row | rows | failed | SHA-256 of the content |",
        "|---|---:|---:|---:|---|",
        *(
            f"| {e.file} | {e.first_row} | {e.rows} | {e.failed_rows} | {_hex(e.content_sha256)} |"
            for e in index.shards
        ),
        "",
        "To verify the files, here or in a copy:",
        "",
        "```sh",
        "sha256sum --check <<'END'",
        *(f"{_hex(e.sha256)}  {e.file}" for e in index.shards),
        "END",
        "```",
        "",
        "`pipeline shards verify .` verifies every row as well.",
        "",
        "## Citing",
        "",
        "Name the dataset, the weights and these two hashes, which cover every setting and every "
        "value:",
        "",
        f"- recipe hash {header.recipe_hash}",
        f"- content {contents} (SHA-256 of the canonical JSON list of the shards' contents)",
    ]
    return "\n".join(lines) + "\n"


def _header(index: FeatureIndex, licence: str | None) -> list[str]:
    # A JSON string of printable characters is also a quoted YAML string.
    quoted = json.dumps(f"Features of {_visible(index.header.dataset)}", ensure_ascii=False)
    identifier = (licence or "").lower().replace(" ", "-").removesuffix(".")
    identifier = {"cc0": "cc0-1.0", "public-domain": "cc0-1.0"}.get(identifier, identifier)
    stated = [f"license: {identifier if identifier in _LICENCES else 'other'}"] if licence else []
    return [
        "---",
        f"pretty_name: {quoted}",
        *stated,
        "tags: [features, embeddings, hdf5]",
        "task_categories: [feature-extraction]",
        f"size_categories: [{_size_category(index.rows)}]",
        "viewer: false",
        "---",
        "",
    ]


def _size_category(rows: int) -> str:
    """Return the hub's size category of a row count, such as 1K<n<10K."""
    names = ("n<1K", "1K<n<10K", "10K<n<100K", "100K<n<1M", "1M<n<10M", "10M<n<100M")
    powers = (3, 4, 5, 6, 7, 8)
    categories = zip(names, powers, strict=True)
    return next((name for name, power in categories if rows < 10**power), "100M<n<1B")


def _failed_rows(index: FeatureIndex, failures: Sequence[tuple[str, str, str]]) -> list[str]:
    if not index.failed_rows:
        return []
    shown = failures[:_FAILURES_SHOWN]
    lines = ["## Failed rows", "", "They keep their ids and hold NaN.", ""]
    if shown:
        lines += ["| id | status | reason |", "|---|---|---|"]
        lines += [f"| {' | '.join(map(_escaped, failure))} |" for failure in shown] + [""]
    if rest := index.failed_rows - len(shown):
        lines += [f"{rest} more: see `status` and `error` in the shards.", ""]
    return lines


def _escaped(text: str) -> str:
    """Return text with all characters special in Markdown or HTML as character references."""
    escaped = (c if _PLAIN.fullmatch(c) and c != "_" else f"&#{ord(c)};" for c in _visible(text))
    plain = "".join(escaped)
    # Some renderers turn bare addresses into links.
    return plain.replace("://", "&#58;//").replace("www.", "www&#46;")


def _visible(text: str) -> str:
    """Return text with unprintable characters as Python escapes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _hex(text: str) -> str:
    if not re.fullmatch(r"[0-9a-f]{64}", text):
        raise ShardError(f"index.json has the SHA-256 {text!r}, which is invalid")
    return text
