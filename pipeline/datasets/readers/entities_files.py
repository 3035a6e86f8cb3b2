"""Files of Flickr30k Entities: boxes in XML, marked sentences, from a folder or archive."""

import re
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from xml.etree import ElementTree

from pipeline.datasets.checks import DatasetError
from pipeline.datasets.phrases import Box, check_box
from pipeline.datasets.source import caption_line

UNRELATED = "UNRELATED_CAPTIONS"
_MOST_BYTES = 1 << 25
_MARKED = re.compile(r"\[/EN#([0-9]+)((?:/[^\s/\[\]]+)+) ([^\[\]]+)\]")


@dataclass(slots=True)
class Annotation:
    """Contents of one XML file."""

    size: tuple[int, int]  # width and height of the image in pixels
    boxes: dict[str, list[Box]]  # by chain
    boxless: set[str]  # chains without boxes


@dataclass(slots=True)
class Sentence:
    """One caption with its phrases."""

    text: str  # without marks
    phrases: list[tuple[str, tuple[str, ...], str]]  # chain, types and words


@dataclass
class Source:
    """Contents of all files."""

    annotations: dict[str, Annotation] = field(default_factory=dict)  # by image number
    sentences: dict[str, list[Sentence]] = field(default_factory=dict)  # by image number
    lists: dict[str, list[str]] = field(default_factory=dict)  # lines by name of the split


def read_files(root: Path) -> Source:
    """Read all annotations, sentences and lists of a folder, tar or zip file."""
    source = Source()
    for path, data in _members(root):
        _add(source, PurePosixPath(path), data, f"{root}/{path}")
    return source


def _members(root: Path) -> Iterator[tuple[str, bytes]]:
    """Yield path and bytes of the relevant files, each read once, without unpacking to disk."""
    try:
        if root.is_dir():
            for path in sorted(root.rglob("*")):
                if path.is_file() and _matters(name := path.relative_to(root).as_posix()):
                    _require_small(path.stat().st_size, str(path))
                    yield name, path.read_bytes()
        elif zipfile.is_zipfile(root):
            with zipfile.ZipFile(root) as archive:
                for name in sorted(archive.namelist()):
                    if _matters(name):
                        _require_small(archive.getinfo(name).file_size, f"{root}: {name}")
                        yield name, archive.read(name)
        else:
            with tarfile.open(root) as archive:
                for member in archive:
                    if member.isfile() and _matters(member.name):
                        _require_small(member.size, f"{root}: {member.name}")
                        stream = archive.extractfile(member)
                        yield member.name, stream.read() if stream else b""
    # The last two: an encrypted zip file, or one with an unsupported compression.
    except (
        OSError, tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, RuntimeError,
        NotImplementedError,
    ) as error:  # fmt: skip
        reason = " ".join(str(error).split())
        raise DatasetError(
            f"{root} cannot be read ({reason}); expected a folder, .tar.gz or .zip with "
            "Annotations/ and Sentences/"
        ) from error


def _require_small(size: int, where: str) -> None:
    """Raise if a file unpacks to more than any annotation, sentence or list has."""
    if size > _MOST_BYTES:
        raise DatasetError(
            f"{where} has {size:,} bytes, but no file of Flickr30k Entities has more than "
            f"{_MOST_BYTES:,}; download the archive again"
        )


def _matters(path: str) -> bool:
    parts = PurePosixPath(path)
    folder, name = parts.parent.name, parts.name
    if folder in ("Annotations", "Sentences"):
        return name.endswith((".xml", ".txt")) and not name.startswith(".")
    return name == UNRELATED or name.endswith(".txt")


def _add(source: Source, file: PurePosixPath, data: bytes, where: str) -> None:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DatasetError(f"{where}: byte {error.start} is not UTF-8; convert the file") from error
    lines = text.splitlines()
    if file.parent.name == "Annotations":
        source.annotations[file.stem] = _annotation(text, where)
    elif file.parent.name == "Sentences":
        source.sentences[file.stem] = [
            _sentence(line, f"{where}, line {number}")
            for number, line in enumerate(lines, start=1)
            if line.strip()
        ]
    else:
        source.lists[file.stem] = [line for line in lines if not line.startswith("#")]


def _annotation(text: str, where: str) -> Annotation:
    # Expat expands entities that a file defines; these files define none.
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise DatasetError(f"{where} defines entities, which no file of Entities does; remove it")
    try:
        document = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise DatasetError(f"{where} is not XML: {error}; check that it is complete") from error
    width, height = (_whole(document.find("size"), side, where) for side in ("width", "height"))
    annotation = Annotation((width, height), {}, set())
    for number, thing in enumerate(document.iterfind("object")):
        here = f"{where}: object {number}"
        chains = [name.text or "" for name in thing.iterfind("name")]
        if not chains:
            raise DatasetError(f"{here} has no <name>; expected the number of its chain")
        corners = thing.find("bndbox")
        if corners is None:
            annotation.boxless.update(chains)
            continue
        x0, y0, x1, y1 = (_whole(corners, side, here) for side in ("xmin", "ymin", "xmax", "ymax"))
        box = (float(x0 - 1), float(y0 - 1), float(x1), float(y1))
        if reason := check_box(box, annotation.size):
            raise DatasetError(
                f"{here} (chain {', '.join(chains)}): its box {x0} {y0} {x1} {y1}, counted from 1, "
                f"{reason}; correct the file, or remove the image from its split"
            )
        for chain in chains:
            annotation.boxes.setdefault(chain, []).append(box)
    return annotation


def _whole(element: ElementTree.Element | None, name: str, where: str) -> int:
    text = element.findtext(name) if element is not None else None
    try:
        number = int(text or "")
        float(number)
        return number
    except (ValueError, OverflowError):
        raise DatasetError(
            f"{where}: <{name}> is {text!r}, expected a whole number of pixels"
        ) from None


def _sentence(line: str, where: str) -> Sentence:
    phrases = [
        (chain, tuple(types.strip("/").split("/")), words)
        for chain, types, words in _MARKED.findall(line)
    ]
    text = _MARKED.sub(r"\3", line)
    if "[/EN" in text:
        raise DatasetError(
            f"{where}: the mark at {text[text.index('[/EN') :][:40]!r} is not closed or malformed; "
            "expected [/EN#chain/type words]"
        )
    return Sentence(caption_line(text, where), phrases)
