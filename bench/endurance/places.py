"""Places of a project: names, links, mounts, and files that systems leave in folders."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from bench.endurance.mounts import mounted
from bench.endurance.situation import Setting, Situation

_LITTER = (".DS_Store", "._a.jpg", "Thumbs.db", ".nfs0000000012", ".ipynb_checkpoints/a.jpg")


def _named(name: bytes) -> Situation:
    """Return the situation of a project in a folder of a name."""

    @contextmanager
    def arrange(folder: Path) -> Iterator[Setting]:
        other = Path(os.fsdecode(os.fsencode(folder.parent) + b"/" + name))
        other.parent.mkdir(parents=True, exist_ok=True)
        folder.rename(other)
        yield Setting(other)
        other.rename(folder)
        for made in other.relative_to(folder.parent).parents[:-1]:
            (folder.parent / made).rmdir()

    return Situation(arrange)


@contextmanager
def _linked_project(folder: Path) -> Iterator[Setting]:
    """Put the project behind a link."""
    link = folder.with_name("link")
    link.symlink_to(folder.name)
    yield Setting(link)
    link.unlink()


def _linked(name: str, *differing: str) -> Situation:
    """Return the situation of a folder of the project that is a link to another disk."""

    @contextmanager
    def arrange(folder: Path) -> Iterator[Setting]:
        other = folder.with_name("other disk")
        (folder / name).rename(other)
        (folder / name).symlink_to(other)
        yield Setting(folder)
        (folder / name).unlink()
        other.rename(folder / name)

    return Situation(arrange, differing=differing)


@contextmanager
def _linked_files(folder: Path) -> Iterator[Setting]:
    """Replace every input file by a link into a cache of the project, as DVC does."""
    (folder / ".dvc/cache").mkdir(parents=True)
    links = {}
    for number, path in enumerate(sorted((folder / "data").rglob("*"))):
        if path.is_file():
            links[path] = folder / f".dvc/cache/{number}"
            path.rename(links[path])
            path.symlink_to(links[path])
            links[path].chmod(0o444)
    yield Setting(folder)
    for path, cached in links.items():
        if path.is_symlink():
            path.unlink()
            shutil.copy(cached, path)
            path.chmod(0o644)
    shutil.rmtree(folder / ".dvc")


@contextmanager
def _broken_output(folder: Path) -> Iterator[Setting]:
    """Make the folder of the outputs a link that leads nowhere."""
    (folder / "made").rmdir()
    (folder / "made").symlink_to("nowhere/at/all")
    yield Setting(folder)
    (folder / "made").unlink()
    (folder / "made").mkdir()


@contextmanager
def _loops(folder: Path) -> Iterator[Setting]:
    """Add links to themselves and to their parents to every folder."""
    links = [
        path / name
        for path in (folder, *sorted(path for path in folder.rglob("*") if path.is_dir()))
        for name in ("loop", "up")
    ]
    for link in links:
        link.symlink_to("loop" if link.name == "loop" else "..")
    yield Setting(folder)
    for link in links:
        link.unlink(missing_ok=True)


@contextmanager
def _litter(folder: Path) -> Iterator[Setting]:
    """Put the files that desktops, network disks and notebooks leave into every folder."""
    files = [
        path / name
        for path in (folder, *sorted(path for path in folder.rglob("*") if path.is_dir()))
        for name in _LITTER
    ]
    for file in files:
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(b"\0\5\26\7")
    yield Setting(folder)
    for file in files:
        file.unlink(missing_ok=True)
        if file.parent.name == ".ipynb_checkpoints" and file.parent.is_dir():
            file.parent.rmdir()


def _mount(*mounts: str) -> Callable[[Path], AbstractContextManager[Setting]]:
    """Return the arrangement of mounts that the command alone sees."""

    @contextmanager
    def arrange(folder: Path) -> Iterator[Setting]:
        yield Setting(folder, mounted(folder, mounts))

    return arrange


@contextmanager
def _removed(folder: Path) -> Iterator[Setting]:
    """Remove the working folder under the command."""
    gone = folder.with_name("gone")
    gone.mkdir()
    yield Setting(gone, gone.rmdir)


@contextmanager
def _file_for_folder(folder: Path) -> Iterator[Setting]:
    """Put a file where the folder of the outputs should be."""
    (folder / "made").rmdir()
    (folder / "made").write_text("")
    yield Setting(folder)
    (folder / "made").unlink()
    (folder / "made").mkdir()


def _written(form: str) -> Situation:
    """Return the situation of paths that are written in another form."""

    @contextmanager
    def arrange(folder: Path) -> Iterator[Setting]:
        def written(argument: str) -> str:
            is_path = argument.startswith(("data/", "made/"))
            return form.format(folder=folder, path=argument) if is_path else argument

        yield Setting(folder, argument=written)

    return Situation(arrange)


PLACES = {
    "paths in full": _written("{folder}/{path}"),
    "paths with dots and slashes": _written("./data/..//{path}"),
    "name with spaces and signs": _named(b"a b'c\"d$e#f%g[h]*i&j;k"),
    "name in other scripts": _named("Bilder für 写真 \N{CAMERA}".encode()),
    "name with a newline": _named(b"a\nb"),
    "name that is not UTF-8": _named(b"caf\xe9"),
    "name that begins with -": _named(b"-rf"),
    "name of a URL": _named(b"s3:/bucket"),
    "path of 1,500 bytes": _named(b"/".join([b"n" * 250] * 6)),
    "project behind a link": Situation(_linked_project),
    "data behind a link": _linked("data"),
    "outputs behind a link": _linked("made", "made/mine/dataset.json"),
    "files behind links": Situation(_linked_files),
    "outputs behind a broken link": Situation(_broken_output, refusable=True),
    "links in a circle": Situation(_loops),
    "files of desktops": Situation(_litter),
    "outputs are a mount": Situation(_mount("--bind made made")),
    "outputs are read-only": Situation(
        _mount("--bind made made", "-o remount,bind,ro made"), refusable=True
    ),
    "inputs are read-only": Situation(
        _mount("--bind data data", "-o remount,bind,ro data"), refusable=True
    ),
    "no programs on the disk": Situation(_mount("--bind . .", "-o remount,bind,noexec .")),
    "working folder removed": Situation(_removed, refusable=True),
    "a file for the folder": Situation(_file_for_folder, refusable=True),
}
