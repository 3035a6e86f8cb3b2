"""The job of `pipeline export`: an experiment as programs, which run without this package."""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pipeline.datasets.manifest import read_manifest
from pipeline.experiments.layout import Layout, NotMade, unseeded
from pipeline.heads import HeadError
from pipeline.heads.experiments import experiment_finder
from pipeline.heads.finetuning import WEIGHTS_FILE
from pipeline.heads.head_types import Experiment
from pipeline.heads.inputs.averaged import averaged
from pipeline.heads.inputs.feature_rows import Features
from pipeline.heads.inputs.pairs import join_pairs, made_from
from pipeline.heads.programs import (
    OPSET,
    OUTPUT,
    SUFFIXES,
    largest_difference,
    run_program,
    write_program,
)
from pipeline.heads.trained_head import TENSORS_FILE, TrainedHead, load_head
from pipeline.images.encoder import Preprocess, WindowNetwork
from pipeline.retrieval.embedding_file import IN_FULL, embeddings_record, read_embeddings
from pipeline.retrieval.query.picture_features import open_features
from pipeline.store.builder.locking import only_writer, work_file
from pipeline.store.current.record import Record, stale
from pipeline.store.current.replace import finish_swap, swap
from pipeline.store.errors import PipelineError, WrongUsage
from pipeline.store.extras import EXTRAS, require_extra
from pipeline.store.files import created_by, require_folder, write_json
from pipeline.store.hashing import sha256_of_file
from pipeline.store.progress import QUIET, Monitor
from pipeline.store.shards.feature_set import FeatureSet

EXPORT_FILE = "export.json"
"""What the programs were made from, and their inputs and outputs; see docs/python.md."""

TOLERANCE = 1e-4
"""Largest difference of a row from that of the embedding file, relative to its norm."""

# A program, with its input rows and the embeddings of the file.
_Side = tuple[nn.Module, np.ndarray, Features]

_NAMES = {"image": "features", "caption": "features", "photo": "windows"}  # of inputs
_ROWS, _PHOTOS = 64, 8  # compared with the embedding file, at most


def export_model(
    experiment: str,
    dataset: str | Path,
    out: str | Path,
    *,
    to: str = "torch",
    experiments: Mapping[str, Experiment] | None = None,
    root: str | Path | None = None,
    weights: str | None = None,
    without_photo: bool = False,
    monitor: Monitor = QUIET,
) -> dict[str, float]:
    """Export an experiment as programs that torch or onnxruntime runs without this package.

    `image` and `caption` map features to embeddings; `photo` maps pixels, resized and cropped, to
    the embedding of `image`. `photo` is omitted, with a log line, if the image features are not of
    one image network that can be exported. `export.json` has the preprocessing, and the names,
    shapes and types of inputs and outputs. Each program is run on rows of the embedding file and
    compared with it before the folder appears.

    Parameters
    ----------
    experiment : str. Name of an experiment computed by `pipeline.run`.
    dataset : str or Path. Folder of its dataset.
    out : str or Path. Folder of the programs; those of an earlier call are replaced.
    to : str. "torch", for `torch.export.load`, or "onnx".
    experiments : mapping of str to Experiment, or None. As passed to `pipeline.run`.
    root : str, Path or None. Output folder of `pipeline.run`; None: see `Layout`.
    weights : str or None. Weights of the image network; None: as recorded in the head.
    without_photo : bool. Write only `image` and `caption`.
    monitor : Monitor. Receives a log line for each program.

    Returns
    -------
    dict of str to float
        Largest relative difference of a row from the embedding file, by program.

    Raises
    ------
    NotMade
        A file of the experiment is missing.
    HeadError
        A file is out of date, a side of the head cannot be exported, or a program differs from the
        embedding file by more than 1e-4.
    WrongUsage
        Another format, an ensemble, or an experiment on regions and phrases.
    MissingPackage
        The extra onnx is not installed.

    Examples
    --------
    >>> differences = pipeline.export_model(
    ...     "qian2018-baseline", "data/mine", "programs", without_photo=True
    ... )
    >>> sorted(differences), max(differences.values()) < 1e-4
    (['caption', 'image'], True)
    """
    if to not in SUFFIXES:
        raise WrongUsage(f"no program has the format {to!r}; expected {' or '.join(SUFFIXES)}")
    if to == "onnx":
        require_extra("onnx", "programs in the format onnx need")
    layout, out = Layout(dataset, root), Path(out).absolute()
    require_folder(out)
    trained, sides = _sides(experiment, layout, experiments or {})
    if not without_photo:
        try:
            sides["photo"] = _photo(trained, layout, experiment, weights, sides["image"])
        except PipelineError as error:
            monitor.log(f"photo{SUFFIXES[to]} is left out: {error}")
    differences: dict[str, float] = {}
    described: dict[str, Any] = {}
    with _replacing(out) as work:
        for name, (module, rows, expected) in sides.items():
            path = work / f"{name}{SUFFIXES[to]}"
            write_program(module, rows, _NAMES[name], path)
            difference = largest_difference(run_program(path, rows), expected)
            monitor.log(f"{path.name}: {len(rows)} rows differ by at most {difference:.1e}")
            if not difference <= TOLERANCE:
                raise HeadError(
                    f"{path.name} was not written: its rows differ from those of "
                    f"{layout.embeddings(experiment)} by {difference:.1e} (relative), more than "
                    f"{TOLERANCE:.0e}"
                    + (
                        "; features of another device or precision differ so: pass "
                        "`without_photo=True`, or extract them again"
                        if name == "photo"
                        else "; use the head in Python, with `pipeline.load_head`"
                    )
                )
            differences[name] = difference
            described[path.name] = {
                "sha256": sha256_of_file(path),
                "input": _described(_NAMES[name], rows),
                "output": _described(OUTPUT, expected),
            }
        packages = ["torch"] if to == "torch" else ["torch", *EXTRAS["onnx"]]
        write_json(
            work / EXPORT_FILE,
            {
                "programs": described,
                "format": to,
                **({"opset": OPSET} if to == "onnx" else {}),
                "similarity": trained.head.similarity,
                "head": trained.provenance,
                "exported_by": created_by(*packages),
            },
        )
    return differences


def _described(name: str, rows: np.ndarray) -> dict[str, Any]:
    return {"name": name, "shape": ["n", *rows.shape[1:]], "dtype": str(rows.dtype)}


def _sides(
    name: str, layout: Layout, experiments: Mapping[str, Experiment]
) -> tuple[TrainedHead, dict[str, _Side]]:
    """Return a head, its modules, and rows of the embedding file with their features."""
    remedy = f"run `pipeline run {unseeded(name)} --dataset {layout.dataset}`"
    if layout.ensemble(name).is_file():
        raise WrongUsage(f"{name} is an ensemble; export its members, and join their rows")
    planned = experiment_finder(experiments)(unseeded(name))
    if planned.of_phrases:
        raise WrongUsage(f"{name} is fitted on regions and phrases, which have no embedding file")
    if planned.csls:
        raise WrongUsage(f"rows of {name} are corrected by `csls`; export it without `csls: true`")
    head, file = layout.head(name), layout.embeddings(name)
    for path in (head / TENSORS_FILE, file):
        if not path.is_file():
            raise NotMade(f"{path} not found; {remedy}")
    images = FeatureSet(layout.features(planned.embedded_images))
    captions = FeatureSet(layout.text(planned.captions.name))

    def expected() -> Record:
        tensors = sha256_of_file(head / TENSORS_FILE)
        inputs = made_from(layout.dataset, images.index, captions.index)
        return {"tensors_sha256": tensors, **IN_FULL, **inputs}

    if reason := stale(file, embeddings_record, expected):
        raise HeadError(f"{file} is out of date ({reason}), and programs are compared; {remedy}")
    trained, stored = load_head(head), read_embeddings(file)
    ids = [*stored.image_ids[:_ROWS]]
    manifest = read_manifest(layout.dataset)
    captioned = dict.fromkeys(stored.caption_image_ids[:_ROWS])
    pairs = join_pairs([manifest[one] for one in captioned], images, captions, in_memory=0)
    if trained.average_captions:
        pairs = replace(pairs, captions=averaged(pairs).captions)
    rows = pairs.captions.take(np.arange(min(_ROWS, len(pairs.captions))))
    return trained, {
        "image": (trained.image, images.read(ids), stored.image_embeddings[: len(ids)]),
        "caption": (trained.caption, rows, stored.caption_embeddings[: len(rows)]),
    }


class _Stored(nn.Module):
    """Rounds features as the shards store them."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self._dtype = dtype

    def forward(self, rows: Tensor) -> Tensor:
        return rows.to(self._dtype).float()


def _photo(
    trained: TrainedHead, layout: Layout, name: str, weights: str | None, image: _Side
) -> _Side:
    """Return the image side with its network, windows of images, and their embeddings."""
    tuned = layout.head(name) / WEIGHTS_FILE
    if weights is None and trained.finetuning is not None:
        weights = str(tuned)
    side = trained.inputs.images
    networks = open_features(side, f"the head of {name!r}", weights, engine="reference").networks
    if len(networks) > 1:
        raise HeadError(f"{side.name!r} concatenates the features of {len(networks)} networks")
    network, manifest = networks[0], read_manifest(layout.dataset)
    preprocess = Preprocess(network.recipe, network.window)
    ids = read_embeddings(layout.embeddings(name)).image_ids[:_PHOTOS]
    windows = [preprocess(manifest.image_root / manifest[one].file) for one in ids]
    stored = _Stored(getattr(torch, network.recipe.storage))
    module = nn.Sequential(WindowNetwork(network, gradients=True), stored, trained.image)
    return module.eval(), torch.stack(windows).numpy(), image[2][: len(windows)]


@contextmanager
def _replacing(out: Path) -> Iterator[Path]:
    """Yield an empty folder, which then replaces the programs in `out`."""
    work = work_file(out, ".export")
    with only_writer(work_file(out, ".lock"), out):
        finish_swap(out, _is_program)
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        try:
            yield work
            if out.exists():
                swap(work, out, _is_program)
            else:
                work.rename(out)
        finally:
            shutil.rmtree(work, ignore_errors=True)


def _is_program(path: Path) -> bool:
    return path.name == EXPORT_FILE or (path.stem in _NAMES and path.suffix in SUFFIXES.values())
