"""Captioning of images by experiment name, and scores of captions."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import overload

from pipeline.datasets.image_truth import truth_of
from pipeline.datasets.manifest import read_manifest
from pipeline.datasets.splits import split_for
from pipeline.experiments.layout import Layout
from pipeline.heads.experiments import experiment_finder
from pipeline.heads.head_types import Experiment
from pipeline.images.given_pictures import GivenPicture, pictures_of
from pipeline.language.captioning.captioner import Writing
from pipeline.language.captioning.captioners import Baseline, open_captioner, open_ranking_head
from pipeline.language.captioning.captions_file import Described
from pipeline.language.captioning.consensus import NEIGHBOURS, Training
from pipeline.language.captioning.describe import describe_pictures, describe_split
from pipeline.language.captioning.rerank import WEIGHT, rerank_captions
from pipeline.language.score_captions import Row, evaluate_captions
from pipeline.store.devices import AUTO, choose_device
from pipeline.store.errors import WrongUsage
from pipeline.store.one_or_many import values_of
from pipeline.store.progress import QUIET, Monitor


@overload  # a str is an Iterable too; the first match applies
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
    device: str = ...,
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
    device: str = ...,
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
    device: str = AUTO,
    experiments: Mapping[str, Experiment] | None = None,
    root: str | Path | None = None,
    monitor: Monitor = QUIET,
) -> Described | list[Described]:
    """Caption one or several images with a trained experiment.

    As `caption_split`, but for images outside a dataset; nothing is written.

    Parameters
    ----------
    pictures : image or iterable of images, as for `pipeline.FeatureExtractor`.
    dataset : str or Path. Folder of the experiment's training dataset.
    experiment : str. Name of a language model, or with `baseline` of a retrieval experiment.
    baseline : str or None. "nearest" training captions, or the "most-frequent" ones.
    writing : Writing or None. Decoding options of a language model; None: its defaults.
    count : int. Maximum number of captions per image.
    seed : int. Seed of all random choices.
    weights : str or None. Weights of the image network; None: as recorded in the head.
    device : str. A torch device, such as "cuda"; "auto": the best of this machine.
    experiments : mapping of str to Experiment, or None. As passed to `pipeline.run`.
    root : str, Path or None. Output folder of `pipeline.run`; None: see `Layout`.
    monitor : Monitor. Receives progress in images.

    Returns
    -------
    Described
        Captions of a single image, best first; an unreadable image has an error.
    list of Described
        For several images, in their order.

    Raises
    ------
    UnexpectedType
        A value is not an image.
    WrongUsage
        A language model with a baseline, or a retrieval experiment without one.
    LanguageError, HeadError, EncoderError
        The model, its head or the head's encoder are missing or inconsistent.
    DeviceError
        The device is not usable.

    Examples
    --------
    >>> described = pipeline.caption(
    ...     "data/mine/images/scene-00000.png",
    ...     "data/mine",
    ...     experiment="qian2018-baseline",
    ...     baseline="nearest",
    ... )
    >>> described.text
    '...'
    """
    given, alone = pictures_of(pictures)
    layout = Layout(dataset, root)
    finder = experiment_finder(experiments)
    device = choose_device(device, monitor, float64=True)
    opened = open_captioner(experiment, layout, finder, baseline, writing=writing, device=device)
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
    device: str = AUTO,
    experiments: Mapping[str, Experiment] | None = None,
    root: str | Path | None = None,
    monitor: Monitor = QUIET,
) -> list[Described]:
    """Caption every image of a split with a trained experiment, and write the captions.

    As `caption`, but from the stored features of a dataset. A work file next to `out` keeps
    finished images until the file is written; the same call resumes from it.

    Parameters
    ----------
    dataset : str or Path. Folder of a prepared dataset.
    out : str, Path or None. File ending in .jsonl, or in .json for COCO's result format; None:
        captions/DATASET/EXPERIMENT.jsonl below `root`.
    split : str or None. Split to caption; None: the test split.
    limit : int or None. Only the first images of the split.
    experiment, baseline, writing, count, seed, device, experiments, root, monitor : see `caption`.

    Returns
    -------
    list of Described
        Every image, in dataset order. An image whose features failed has an error.

    Raises
    ------
    WrongUsage, LanguageError, HeadError, EncoderError
        See `caption`; or the file has another suffix.
    DatasetError, MissingRows
        The dataset lacks the split, or an image has no features.

    Examples
    --------
    >>> described = pipeline.caption_split(
    ...     "data/mine", "nearest.jsonl", experiment="qian2018-baseline", baseline="nearest"
    ... )
    >>> described[0].image, len(described[0].captions)
    ('scene-00002', 5)
    """
    layout = Layout(dataset, root)
    finder = experiment_finder(experiments)
    device = choose_device(device, monitor, float64=True)
    opened = open_captioner(experiment, layout, finder, baseline, writing=writing, device=device)
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


def rerank(
    files: str | Path | Iterable[str | Path],
    dataset: str | Path,
    out: str | Path | None = None,
    *,
    experiment: str,
    weight: float = WEIGHT,
    consensus: float = 0.0,
    neighbours: int = NEIGHBOURS,
    experiments: Mapping[str, Experiment] | None = None,
    root: str | Path | None = None,
    monitor: Monitor = QUIET,
) -> list[Described]:
    """Rerank generated captions by their similarity to the image in an experiment's space.

    The new score is that in the file plus the weighted cosine of caption and image, and the
    weighted consensus: the mean CIDEr (0 to 1, without clipping and length penalty) of the caption
    with the captions of the training images nearest to the image, of which each counts as
    exp(cosine / 0.1). The first candidate wins ties.

    Parameters
    ----------
    files : str, Path or iterable of them. NAME.jsonl of `caption_split`, with several candidates
        per image. Those of several files are pooled: their scores must be comparable, as those of
        one kind of language model are, and a sentence in several has its highest one.
    dataset : str or Path. Folder of the captioned dataset.
    out : str, Path or None. NAME.jsonl, or NAME.json for COCO's result format; None:
        captions/DATASET/NAME-by-EXPERIMENT.jsonl below `root`, with the NAME of the first file.
    experiment : str. A trained retrieval experiment with cosine similarity.
    weight : float. Weight of the cosine that is added to the score in the file, at least 0.
    consensus : float. Weight of the consensus, at least 0; 0: it is not computed.
    neighbours : int. Number of training images for the consensus, at least 1.
    experiments, root, monitor : see `caption`.

    Returns
    -------
    list of Described
        Every image in the order of the first file; `parts` also has `cosine`, `consensus` if it
        has a weight, and the old score as `generated`. Images without a caption keep their error.

    Raises
    ------
    LanguageError, HeadError, EncoderError, ShardError
        A file is damaged, has no candidates or other images than the first one, a number is out of
        range, the experiment's files are missing, or there is no training caption for the
        consensus.

    References
    ----------
    Fang et al. 2015, "From captions to visual concepts and back", section 5: candidates of a
    language model are reranked with a similarity of image and caption, among other features.
    Devlin et al. 2015, "Exploring nearest neighbor approaches for image captioning":
    consensus captions.

    Examples
    --------
    >>> reranked = pipeline.rerank(
    ...     "data/captions/mine/xu2015-soft-attention.jsonl", "data/mine", experiment="ours-linear"
    ... )  # doctest: +SKIP
    >>> reranked[0].text  # doctest: +SKIP
    'a dog runs on the grass'
    """
    layout = Layout(dataset, root)
    paths = [Path(file) for file in values_of(files, (str, Path), "a file (path)")]
    if not paths:
        raise WrongUsage("no file of captions was named; write one with `pipeline caption`")
    head = open_ranking_head(experiment_finder(experiments)(experiment), layout)
    if out is None:
        out = layout.captions(f"{paths[0].stem}-by-{experiment}")
    training = None
    if consensus:
        manifest = read_manifest(layout.dataset)
        entries = manifest.select(split_for("train", manifest, None))
        training = Training(entries, consensus, neighbours)
    return rerank_captions(paths, out, head=head, weight=weight, training=training, monitor=monitor)


def score(
    files: str | Path | Iterable[str | Path] | None,
    dataset: str | Path,
    out: str | Path | None = None,
    *,
    ranked_by: str | None = None,
    experiments: Mapping[str, Experiment] | None = None,
    root: str | Path | None = None,
    monitor: Monitor = QUIET,
) -> dict[str, Row]:
    """Score caption files: BLEU, ROUGE-L, CIDEr, words, copies, and correctness on drawn scenes.

    Parameters
    ----------
    files : str, Path, iterable of them or None. Files of `caption_split`, or in COCO's result
        format; None: all in captions/DATASET below `root`.
    dataset : str or Path. Folder of the captioned dataset.
    out : str, Path or None. Folder with a subfolder of scores per file; None:
        caption-scores/DATASET below `root`.
    ranked_by : str or None. Name of a retrieval experiment that ranks the images by each caption.
    experiments, root, monitor : see `caption`.

    Returns
    -------
    dict of str to dict
        The scores of each file, by its name without suffix: BLEU, ROUGE-L and shares in per cent,
        CIDEr out of 10.

    Raises
    ------
    WrongUsage
        There is no file, or several have the same name.
    LanguageError, HeadError, EncoderError, ShardError
        A file is corrupt or of another dataset, or the ranking experiment is missing.

    Examples
    --------
    >>> pipeline.caption_split(
    ...     "data/mine", "nearest.jsonl", experiment="qian2018-baseline", baseline="nearest"
    ... )
    [...]
    >>> sorted(pipeline.score("nearest.jsonl", "data/mine", "scores")["nearest"])[:3]
    ['bleu_1', 'bleu_2', 'bleu_3']
    """
    layout = Layout(dataset, root)
    folder = layout.captions("x").parent
    paths = sorted(folder.glob("*.jsonl"))
    if files is not None:
        paths = [Path(file) for file in values_of(files, (str, Path), "a file (path)")]
    if not paths:
        raise WrongUsage(
            f"{folder} has no captions; write some with `pipeline caption`, or name a file"
        )
    names = [file.stem for file in paths]
    if repeated := {name for name in names if names.count(name) > 1}:
        raise WrongUsage(f"several files are called {', '.join(sorted(repeated))}; rename one")
    head = ranked_by and open_ranking_head(experiment_finder(experiments)(ranked_by), layout)
    truth = truth_of(read_manifest(layout.dataset))
    return {
        file.stem: evaluate_captions(
            file,
            layout.dataset,
            layout.caption_scores(file.stem) if out is None else Path(out, file.stem),
            truth=truth,
            ranked_by=head or None,
            monitor=monitor,
        )
        for file in paths
    }
