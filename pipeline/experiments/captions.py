"""Captions of images by the name of an experiment, and their scores."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import overload

from pipeline.datasets.manifest import read_manifest
from pipeline.errors import WrongUsage
from pipeline.experiments.captioners import (
    Baseline,
    experiment_finder,
    open_captioner,
    open_ranking_head,
)
from pipeline.experiments.known_truth import caption_truth_of
from pipeline.experiments.layout import DATA, Layout
from pipeline.heads.head_types import Experiment
from pipeline.images.given_pictures import GivenPicture, pictures_of
from pipeline.language.captioning.captioner import Writing
from pipeline.language.captioning.captions_file import Described
from pipeline.language.captioning.describe_split import describe_split
from pipeline.language.score_captions import Row, evaluate_captions
from pipeline.one_or_many import values_of
from pipeline.progress import QUIET, Monitor
from pipeline.search.picture_captions import describe_pictures


@overload  # a str is an Iterable too, and the first that fits is meant
def caption(  # type: ignore[overload-overlap]
    pictures: GivenPicture,
    dataset: str | Path,
    *,
    experiment: str,
    baseline: Baseline | None = ...,
    writing: Writing | None = ...,
    count: int = ...,
    seed: int = ...,
    weights: str | None = ...,
    experiments: Mapping[str, Experiment] | None = ...,
    root: str | Path = ...,
    monitor: Monitor = ...,
) -> Described: ...
@overload
def caption(
    pictures: Iterable[GivenPicture],
    dataset: str | Path,
    *,
    experiment: str,
    baseline: Baseline | None = ...,
    writing: Writing | None = ...,
    count: int = ...,
    seed: int = ...,
    weights: str | None = ...,
    experiments: Mapping[str, Experiment] | None = ...,
    root: str | Path = ...,
    monitor: Monitor = ...,
) -> list[Described]: ...
def caption(
    pictures: GivenPicture | Iterable[GivenPicture],
    dataset: str | Path,
    *,
    experiment: str,
    baseline: Baseline | None = None,
    writing: Writing | None = None,
    count: int = 5,
    seed: int = 0,
    weights: str | None = None,
    experiments: Mapping[str, Experiment] | None = None,
    root: str | Path = DATA,
    monitor: Monitor = QUIET,
) -> Described | list[Described]:
    """Describe an image, or several, by a trained experiment.

    Parameters
    ----------
    pictures : image or iterable of images, as `pipeline.FeatureExtractor` accepts them.
    dataset : str or Path. Folder of the dataset that the experiment was trained on.
    experiment : str. Name of a language model, or with `baseline` of a retrieval experiment.
    baseline : str or None. "nearest" training captions, or the "most-frequent" ones.
    writing : Writing or None. How a language model writes; None: its defaults.
    count : int. Captions of an image at most.
    seed : int. Of everything that is drawn.
    weights : str or None. Of the image network; None: as the head records.
    experiments : mapping of str to Experiment, or None. What `pipeline.run` was called with.
    root : str or Path. Folder that `pipeline.run` wrote to.
    monitor : Monitor. Receives progress in images.

    Returns
    -------
    Described
        Captions of a single image, the best first; an image that cannot be read has its error.
    list of Described
        Of several images, in their order.

    Raises
    ------
    UnexpectedType
        A value is not an image.
    WrongUsage
        A language model with a baseline, or a retrieval experiment without one.
    LanguageError, HeadError, EncoderError
        The model, its head or the head's encoder are missing or do not belong together.
    """
    given, alone = pictures_of(pictures)
    layout = Layout(Path(dataset), Path(root))
    finder = experiment_finder(experiments)
    opened = open_captioner(experiment, layout, finder, baseline, writing=writing)
    described = describe_pictures(
        opened.captioner, opened.network(weights), given, count=count, seed=seed, monitor=monitor
    )
    return described[0] if alone else described


def caption_split(
    dataset: str | Path,
    out: str | Path | None = None,
    *,
    experiment: str,
    split: str | None = None,
    limit: int | None = None,
    baseline: Baseline | None = None,
    writing: Writing | None = None,
    count: int = 5,
    seed: int = 0,
    experiments: Mapping[str, Experiment] | None = None,
    root: str | Path = DATA,
    monitor: Monitor = QUIET,
) -> list[Described]:
    """Describe every image of a split by a trained experiment, and write the captions.

    Parameters
    ----------
    dataset : str or Path. Folder of a prepared dataset.
    out : str, Path or None. File ending in .jsonl, or in .json for the format of COCO's results;
        None: captions/DATASET/EXPERIMENT.jsonl below `root`.
    split : str or None. Split that is described; None: "test", or another usual name.
    limit : int or None. Describe the first images of the split only.
    experiment, baseline, writing, count, seed, experiments, root, monitor : see `caption`.

    Returns
    -------
    list of Described
        Every image, in the order of the dataset. One whose features failed has their error.

    Raises
    ------
    WrongUsage, LanguageError, HeadError, EncoderError, DatasetError, MissingRows
        See `caption` and `pipeline.language.captioning.describe_split.describe_split`.
    """
    layout = Layout(Path(dataset), Path(root))
    finder = experiment_finder(experiments)
    opened = open_captioner(experiment, layout, finder, baseline, writing=writing)
    return describe_split(
        opened.captioner,
        layout.dataset,
        layout.captions(opened.name) if out is None else out,
        images=opened.images,
        inputs=opened.inputs,
        split=split,
        limit=limit,
        count=count,
        seed=seed,
        monitor=monitor,
    )


def score(
    files: str | Path | Iterable[str | Path] | None,
    dataset: str | Path,
    out: str | Path | None = None,
    *,
    ranked_by: str | None = None,
    experiments: Mapping[str, Experiment] | None = None,
    root: str | Path = DATA,
    monitor: Monitor = QUIET,
) -> dict[str, Row]:
    """Score files of captions: BLEU, ROUGE-L, CIDEr, words, copies, and on drawn scenes truth.

    Parameters
    ----------
    files : str, Path, iterable of them or None. Files of `caption_split`, or in COCO's format of
        results; None: all in captions/DATASET below `root`.
    dataset : str or Path. Folder of the dataset whose images are described.
    out : str, Path or None. Each file's scores are written to a folder of its name there; None:
        caption-scores/DATASET below `root`.
    ranked_by : str or None. Name of a retrieval experiment that ranks the images by each caption.
    experiments : mapping of str to Experiment, or None. What `pipeline.run` was called with.
    root : str or Path. Folder that `pipeline.run` wrote to.
    monitor : Monitor. Receives a line for each file.

    Returns
    -------
    dict of str to dict
        The figures of each file, by its name without its ending.

    Raises
    ------
    WrongUsage
        There is no file, or several have one name.
    LanguageError, HeadError, EncoderError, ShardError
        A file is damaged or of another dataset, or the ranking experiment is missing.
    """
    layout = Layout(Path(dataset), Path(root))
    folder = layout.captions("x").parent
    found = sorted(folder.glob("*.jsonl"))
    if files is not None:
        found = [Path(file) for file in values_of(files, (str, Path), "a file (path)")]
    if not found:
        raise WrongUsage(
            f"{folder} holds no captions; make some with `pipeline caption`, or name a file"
        )
    names = [file.stem for file in found]
    if repeated := {name for name in names if names.count(name) > 1}:
        raise WrongUsage(f"several files are called {', '.join(sorted(repeated))}; rename one")
    head = ranked_by and open_ranking_head(experiment_finder(experiments)(ranked_by), layout)
    truth = caption_truth_of(read_manifest(layout.dataset))
    return {
        file.stem: evaluate_captions(
            file,
            layout.dataset,
            layout.caption_scores(file.stem) if out is None else Path(out, file.stem),
            truth=truth,
            ranked_by=head or None,
            monitor=monitor,
        )
        for file in found
    }
