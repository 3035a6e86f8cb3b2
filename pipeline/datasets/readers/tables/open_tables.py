"""Selection of the reader for the tables of a file, several files, or a folder."""

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from pipeline.datasets.checks import DatasetError
from pipeline.datasets.readers.tables import parquet, tar_shards, text_tables
from pipeline.datasets.readers.tables.columns import ColumnNames, find_columns
from pipeline.datasets.readers.tables.stored_images import StoredImages
from pipeline.datasets.readers.tables.table import Table
from pipeline.store.objects.urls import url_of

METADATA = ("metadata.csv", "metadata.jsonl", "metadata.parquet")
"""Names of the table in an image folder with Hugging Face's layout."""

SPLIT_FOLDERS = ("train", "training", "val", "valid", "validation", "dev", "test", "testing")
"""Folders that are splits if each of them has its own metadata."""

_SHEETS = (".xlsx", ".xls", ".xlsm", ".xlsb", ".ods", ".numbers")
_COMPRESSED = (".gz", ".tgz", ".zip", ".bz2", ".xz", ".zst", ".7z", ".rar")
_SUFFIXES = (
    *text_tables.DELIMITED_SUFFIXES, *text_tables.LINES_SUFFIXES, ".json", *parquet.SUFFIXES,
    tar_shards.SUFFIX,
)  # fmt: skip


@dataclass(frozen=True)
class TableOptions:
    """User options for tables."""

    columns: ColumnNames = field(default_factory=ColumnNames)
    header: tuple[str, ...] = ()  # columns of text files without a header
    encoding: str | None = None  # without a byte order mark; None is UTF-8
    caption_separator: str | None = None  # between the captions of a cell
    split_by_folder: bool = False  # use the first folder of a path as the split of its image
    follow_links: bool = False  # also those that leave the project's own data


def source_files(source: Path) -> list[Path]:
    """Return the files of a source: itself, or those of a folder or a brace pattern.

    A folder has `metadata.csv`, `.jsonl` or `.parquet`, or each of its split folders has one; or
    tar files. Otherwise the list is empty.
    """
    if not is_folder_of_tables(source):
        return tar_shards.expand_braces(source)
    if (url := url_of(source)) is not None:
        # Imported for URLs alone: it takes 0.05 s.
        from pipeline.store.objects.sources import listing

        names = listing(url, deep=False)
        tables = [source / name for name in METADATA if name in names]
        tars = sorted(source / name for name in names if name.endswith(tar_shards.SUFFIX))
        return tables or tars
    if table := _metadata(source):
        return [table]
    folders = (source / name for name in SPLIT_FOLDERS)
    of_splits = [table for folder in folders if (table := _metadata(folder))]
    return of_splits or sorted(source.glob(f"*{tar_shards.SUFFIX}"))


def is_folder_of_tables(source: Path) -> bool:
    """Return whether a source is a folder; a URL is one unless it ends like a table."""
    if url_of(source) is None:
        return source.is_dir()
    return source.suffix.lower() not in _SUFFIXES


def open_table(file: Path, options: TableOptions, images: StoredImages | None) -> Table:
    """Return the table of a file, by its suffix; images in tar files are added to `images`."""
    suffix = file.suffix.lower()
    if url_of(file) is None and not file.is_file():
        raise DatasetError(f"{file} cannot be read (no such file); check the path")
    check = partial(find_columns, stated=options.columns)
    if suffix in text_tables.DELIMITED_SUFFIXES:
        return text_tables.read_delimited(file, check, options.encoding, options.header)
    if suffix in text_tables.LINES_SUFFIXES:
        return text_tables.read_json_lines(file, options.encoding)
    if suffix == ".json":
        return text_tables.read_json_table(file, check, options.encoding)
    if suffix in parquet.SUFFIXES:
        return parquet.read_parquet(file, options.columns)
    if suffix != tar_shards.SUFFIX:
        raise DatasetError(f"{file} {_not_a_table(suffix)}")
    if images is None:
        raise DatasetError(f"{file} contains images; expected clips, in a folder")
    return tar_shards.read_tar(file, images)


def _not_a_table(suffix: str) -> str:
    if suffix in _SHEETS:
        return (
            "is a spreadsheet, which is not supported; export it as CSV (in Excel: save as "
            '"CSV UTF-8") and use that file'
        )
    if suffix in _COMPRESSED:
        return "is compressed; decompress it first"
    return (
        f"has a name that ends in none of {', '.join(_SUFFIXES)}; convert the file to one of them, "
        "or correct its name"
    )


def _metadata(folder: Path) -> Path | None:
    tables = [folder / name for name in METADATA if (folder / name).is_file()]
    if len(tables) > 1:
        raise DatasetError(
            f"{folder} has {' and '.join(path.name for path in tables)}; state which of them with "
            "`captions=...`"
        )
    return tables[0] if tables else None
