"""`pipeline prepare`: captioned images, read from a source or drawn, become a dataset."""

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from pipeline.datasets.manifest import check_split
from pipeline.experiments.layout import Layout
from stages.console import log_done, log_settings, progress_of

if TYPE_CHECKING:
    from pipeline.datasets.manifest import Manifest

T = TypeVar("T")


class _Assignment(click.ParamType):
    """SPLIT=VALUE as (split, value); VALUE alone, where that is allowed, as (None, value)."""

    def __init__(self, form: str, read: Callable[[str], Any], split_needed: bool = True) -> None:
        self.name = form
        self._read = read
        self._split_needed = split_needed

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str | None, Any]:
        """Return the pair, or refuse the value."""
        split, equals, text = value.partition("=")
        named = bool(equals) and check_split(split) is None
        fault = click.BadParameter(f"{value!r} is not of the form {self.name}", ctx, param)
        try:
            if named and text:
                return split, self._read(text)
            if not self._split_needed and value and not named:
                return None, self._read(value)
        except ValueError as error:
            raise fault from error
        raise fault


def _by_split(
    ctx: click.Context, param: click.Parameter, pairs: Sequence[tuple[str, T]]
) -> dict[str, T]:
    """Turn the values of a repeatable option into a dict; a split named twice is refused."""
    values = dict(pairs)
    if len(values) != len(pairs):
        raise click.BadParameter("the same split is named twice", ctx, param)
    return values


def _count(text: str) -> int:
    if (number := int(text)) < 0:
        raise ValueError(text)
    return number


def _path_option(name: str, text: str, required: bool = True) -> Callable[[Any], Any]:
    return click.option(name, required=required, type=click.Path(path_type=Path), help=text)


def _split_option(name: str, form: str, read: Callable[[str], Any], text: str) -> Any:
    kind = _Assignment(form, read)
    return click.option(name, type=kind, multiple=True, callback=_by_split, help=text)


_images = _path_option("--root", "Folder of the images.")
_captions = _path_option("--captions", "File of the captions.")
_out = _path_option("--out", "Folder of the dataset.")
_expect = _split_option(
    "--expect",
    "SPLIT=COUNT",
    _count,
    "Images that a split must have; repeatable.  [default: not checked]",
)


@click.group()
def prepare() -> None:
    """Read or draw captioned images into a dataset.

    A dataset is a folder with manifest.jsonl (ids, files, splits, captions) and dataset.json;
    read images stay where they are.

    \b
    Example:
      pipeline prepare scenes --images 600 --seed 0 --out data/scenes
    """


@prepare.command()
@click.option(
    "--images",
    "num_images",
    type=click.IntRange(3, 100_000),
    default=600,
    show_default=True,
    help="Number of images.",
)
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the drawing."
)
@_out
def scenes(num_images: int, seed: int, out: Path) -> None:
    """Draw scenes of shapes with five captions each.

    Four in six images are for training, one in six each for val and test. Image i depends on
    the seed and i alone.

    \b
    Example:
      pipeline prepare scenes --images 600 --seed 0 --out data/scenes
    """
    from pipeline.datasets.scenes.dataset import draw_scenes

    log_settings("prepare scenes", images=num_images, seed=seed, out=out)
    started = time.monotonic()
    with progress_of("scenes", "image") as progress:
        manifest = draw_scenes(out, num_images, seed, progress)
    _write(manifest, out, started)


@prepare.command()
@_path_option("--root", "Folder with images/, annotations/*token* and splits/<split>.txt.")
@_path_option("--images", "Folder of the images.  [default: ROOT/images]", required=False)
@_path_option("--captions", "Token file.  [default: ROOT/annotations/*token*]", required=False)
@_split_option(
    "--split", "NAME=FILE", Path, "Split and its list; repeatable.  [default: ROOT/splits/*.txt]"
)
@click.option(
    "--captions-per-image",
    type=click.IntRange(1),
    default=5,
    show_default=True,
    help="Captions that every image of a split must have.",
)
@_expect
@_out
def flickr8k(
    root: Path,
    images: Path | None,
    captions: Path | None,
    split: dict[str, Path],
    captions_per_image: int,
    expect: dict[str, int],
    out: Path,
) -> None:
    """Read Flickr8k's token file and split lists (Flickr30K's token file has the same form).

    \b
    Examples:
      pipeline prepare flickr8k --root DIR --out data/flickr8k
      pipeline prepare flickr8k --root DIR --images DIR/Flicker8k_Dataset \\
          --captions DIR/Flickr8k.token.txt --split train=DIR/Flickr_8k.trainImages.txt \\
          --split dev=DIR/Flickr_8k.devImages.txt --expect train=6000 --out data/flickr8k
    """
    from pipeline.datasets.flickr8k import read_flickr8k

    log_settings(
        "prepare flickr8k",
        root=root,
        images=images,
        captions=captions,
        split=_shown(split),
        captions_per_image=captions_per_image,
        expect=_shown(expect),
        out=out,
    )
    started = time.monotonic()
    manifest = read_flickr8k(
        root,
        images=images,
        captions=captions,
        splits=split,
        captions_per_image=captions_per_image,
        expect=expect,
    )
    _write(manifest, out, started)


@prepare.command()
@_images
@click.option(
    "--captions",
    required=True,
    multiple=True,
    type=_Assignment("[SPLIT=]FILE", Path, split_needed=False),
    help="Caption file and its split; repeatable.  [default split: that of --split]",
)
@click.option(
    "--split", default="val", show_default=True, help="Split of caption files that name none."
)
@_split_option(
    "--folder", "SPLIT=FOLDER", str, "Folder of a split's images below ROOT.  [default: ROOT]"
)
@_expect
@_out
def coco(
    root: Path,
    captions: tuple[tuple[str | None, Path], ...],
    split: str,
    folder: dict[str, str],
    expect: dict[str, int],
    out: Path,
) -> None:
    """Read captions in MS-COCO's annotation format.

    \b
    Examples:
      pipeline prepare coco --root IMAGES --captions captions.json --out data/coco
      pipeline prepare coco --root DIR --out data/coco \\
          --captions train=captions_train2017.json --folder train=train2017 \\
          --captions val=captions_val2017.json --folder val=val2017
    """
    if fault := check_split(split):
        raise click.BadParameter(f"{split!r} {fault}", param_hint="--split")
    files = [(named or split, path) for named, path in captions]
    from pipeline.datasets.coco import read_coco

    log_settings(
        "prepare coco",
        root=root,
        captions=",".join(f"{s}={path}" for s, path in files),
        folder=_shown(folder),
        expect=_shown(expect),
        out=out,
    )
    started = time.monotonic()
    _write(read_coco(root, files, folders=folder, expect=expect), out, started)


@prepare.command()
@_images
@_captions
@click.option(
    "--restval",
    type=click.Choice(["train", "keep", "leave-out"]),
    default="train",
    show_default=True,
    help="COCO's restval images: merge into train, keep as a split, or leave out.",
)
@_split_option(
    "--expect",
    "SPLIT=COUNT",
    _count,
    "Images that a split must have; repeatable.  [default: the counts known of coco, flickr30k "
    "and flickr8k]",
)
@_out
def karpathy(
    root: Path,
    captions: Path,
    restval: Literal["train", "keep", "leave-out"],
    expect: dict[str, int],
    out: Path,
) -> None:
    """Read one of Karpathy's split files, dataset_<name>.json.

    \b
    Example:
      pipeline prepare karpathy --root IMAGES --captions dataset_flickr30k.json \\
          --out data/flickr30k
    """
    from pipeline.datasets.karpathy import read_karpathy

    log_settings(
        "prepare karpathy",
        root=root,
        captions=captions,
        restval=restval,
        expect=_shown(expect),
        out=out,
    )
    started = time.monotonic()
    _write(read_karpathy(root, captions, restval=restval, expect=expect), out, started)


@prepare.command()
@_images
@_captions
@click.option("--name", help="Name of the dataset.  [default: that of the folder OUT]")
@_expect
@_out
def folder(root: Path, captions: Path, name: str | None, expect: dict[str, int], out: Path) -> None:
    """Read your own images from a CSV or JSONL file: path, caption, optional split and id.

    One line is one caption; lines of the same path are one image. Without splits, images are
    split 80/10/10 into train, val and test by the hash of their id.

    \b
    Example:
      pipeline prepare folder --root IMAGES --captions captions.csv --out data/mine
    """
    name = name or out.resolve().name
    from pipeline.datasets.folder import read_folder

    log_settings(
        "prepare folder",
        root=root,
        captions=captions,
        name=name,
        expect=_shown(expect),
        out=out,
    )
    started = time.monotonic()
    _write(read_folder(root, captions, name=name, expect=expect), out, started)


@prepare.command("dataset")
@click.argument("name")
@click.option(
    "--out", type=click.Path(path_type=Path), help="Folder of the dataset.  [default: data/NAME]"
)
def of_params(name: str, out: Path | None) -> None:
    """Prepare a dataset as `datasets` of params.yaml says.

    \b
    Example:
      pipeline prepare dataset scenes
    """
    from stages.params import PARAMS_FILE, load_params

    plan = load_params().dataset_named(name)
    where = str(out or Layout.of(name).dataset)
    prepare.commands[plan.kind].main(
        [*plan.arguments, "--out", where],
        prog_name=f"pipeline prepare {plan.kind} (datasets.{name} of {PARAMS_FILE})",
        standalone_mode=False,
    )


def _write(manifest: "Manifest", out: Path, started: float) -> None:
    """Write the dataset and say what is in it, with all that its preparation noted."""
    manifest.write(out)
    splits = ", ".join(f"{split} {n}" for split, n in manifest.counts.items())
    captions = sum(len(e.captions) for e in manifest.entries)
    notes = "".join(
        f"; {key.replace('_', ' ')}: {json.dumps(value, ensure_ascii=False)}"
        for key, value in manifest.notes.items()
        if key != "source_files"
    )
    log_done(
        f"{len(manifest.entries)} images ({splits}), {captions} captions in {out}, "
        f"{time.monotonic() - started:.1f} s{notes}"
    )


def _shown(values: dict[str, Any]) -> str | None:
    return ",".join(f"{key}={value}" for key, value in values.items()) or None
