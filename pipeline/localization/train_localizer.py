"""Training on regions and phrases: a head of `pipeline.heads` is fitted to pairs of both."""

from dataclasses import dataclass, replace
from pathlib import Path

from pipeline.datasets.manifest import NO_PICTURES, Manifest, read_manifest
from pipeline.datasets.phrases import RegionPhrase
from pipeline.datasets.regions import read_phrases, regions_sha256
from pipeline.datasets.splits import split_for
from pipeline.devices import usable_device
from pipeline.files import created_by, require_folder
from pipeline.heads.base import FitOptions
from pipeline.heads.fit import fit_with_progress, work_folder
from pipeline.heads.head_types import Experiment, make_head, with_epochs_at_most
from pipeline.heads.inputs.feature_rows import FeatureRows
from pipeline.heads.inputs.feature_spec import FeatureSpec, HeadInputs
from pipeline.heads.inputs.links import links_of
from pipeline.heads.inputs.pairs import Pairs, made_from
from pipeline.heads.trained_head import TrainedHead, load_head
from pipeline.localization import LocalizationError
from pipeline.localization.mining import mine
from pipeline.localization.pairs import HeldOutQueries, frame, training_pairs
from pipeline.progress import QUIET, Monitor
from pipeline.regions.proposals import Proposals, read_proposals
from pipeline.shards.feature_set import FeatureSet
from pipeline.text.unique_phrases import phrase_key


@dataclass(frozen=True)
class Sources:
    """What heads of regions and phrases are made from: folders.

    Attributes
    ----------
    dataset : prepared, with phrases.
    phrases : features of its distinct phrases (`pipeline text --phrases`).
    truth : features of the true boxes, that is of proposals of the method ground-truth.
    proposals : boxes of every image (`pipeline propose`).
    regions : features of these boxes, of the same recipe as `truth`.
    most : proposals of an image that count, the first ones.
    """

    dataset: Path
    phrases: Path
    truth: Path
    proposals: Path
    regions: Path
    most: int = 100


class OpenSources:
    """The sources, opened and checked against each other."""

    def __init__(self, sources: Sources) -> None:
        """Open them.

        Raises
        ------
        DatasetError, ShardError, ProposalError
            One is missing or damaged.
        HeadError
            True boxes and proposals have features of different recipes.
        LocalizationError
            Features are of another dataset.
        """
        self.most = sources.most
        self.manifest: Manifest = read_manifest(sources.dataset).require(
            "images", "pipeline localize", NO_PICTURES
        )
        self.texts, self.truth = FeatureSet(sources.phrases), FeatureSet(sources.truth)
        self.regions: FeatureSet = FeatureSet(sources.regions)
        self.proposals: Proposals = read_proposals(sources.proposals)
        FeatureSpec.of(self.truth).require(self.regions, "region")
        for features in (self.texts, self.truth, self.regions):
            if features.index.header.dataset != self.manifest.name:
                raise LocalizationError(
                    f"{features.folder} has features of the dataset "
                    f"{features.index.header.dataset!r}; {self.manifest.name!r} was expected"
                )
        self.inputs = HeadInputs.of(self.truth, self.texts)
        self.made_from = {
            **made_from(sources.dataset, self.truth.index, self.texts.index),
            "phrases_sha256": regions_sha256(sources.dataset),
            "proposals_sha256": FeatureSet(sources.proposals).index.content_sha256,
            "regions_sha256": self.regions.index.content_sha256,
            "proposals_an_image": str(self.most),
        }


def fit_to_phrases(
    sources: Sources,
    out: str | Path,
    *,
    experiment: Experiment,
    start: str | Path | None = None,
    train_split: str | None = None,
    validation_split: str | None = None,
    validation_images: int | None = None,
    seed: int = 0,
    max_epochs: int | None = None,
    workers: int = 0,
    device: str = "cpu",
    monitor: Monitor = QUIET,
) -> TrainedHead:
    """Fit an experiment's head to the regions and phrases of the training split and save it.

    R@1 + R@5 + R@10 of the validation split chooses the epoch. A head that `goes_on_from` another
    starts with its tensors and gets the boxes that it mines. As in `pipeline.heads.fit.fit`, an
    interrupted training goes on from its last epoch and ends in the same bytes.

    Parameters
    ----------
    sources : the data.
    out : folder of the head.
    experiment : of its fields the name, the head, its settings and what it goes on from.
    start : folder of the trained head that it goes on from; None: it starts afresh.
    train_split, validation_split : of the dataset; None: by their usual names.
    validation_images : choose by the first of the validation split's images, so many; None: by all.
    seed : of everything random.
    max_epochs, workers, device : as in `pipeline.heads.fit.fit`.
    monitor : gets log lines and progress.

    Raises
    ------
    LocalizationError
        A split has no phrases, or sources are of different datasets.
    HeadError
        See `pipeline.heads.fit.fit`.
    MissingRows, FailedRows
        A region or phrase has no features.
    """
    out = Path(out)
    require_folder(out)
    usable_device(device)
    opened = OpenSources(sources)
    manifest = opened.manifest
    train_split = split_for("train", manifest, train_split)
    validation_split = split_for("validation", manifest, validation_split)
    settings = with_epochs_at_most(experiment.head, experiment.settings, max_epochs)
    head = make_head(experiment.head, settings, opened.inputs)
    phrases = read_phrases(sources.dataset, train_split)
    pairs = training_pairs(phrases, opened.truth, opened.texts, seed)
    links = links_of(pairs)
    monitor.log(
        f"{train_split}: {len(pairs.image_ids)} regions, {len(links.phrases)} distinct phrases, "
        f"{len(pairs.caption_ids)} pairs"
    )
    entries = manifest.select(validation_split)[:validation_images]
    queries = read_phrases(sources.dataset, validation_split)
    held_out = HeldOutQueries.of(
        frame(manifest, entries, queries, opened.proposals, opened.most),
        opened.regions,
        opened.texts,
    )
    monitor.log(
        f"{validation_split}: {len(held_out.frame.query_ids)} queries, "
        f"{len(held_out.frame.boxes)} proposals"
    )
    source = {**opened.made_from, "validation_images": str(validation_images or "all")}
    begin = None
    if start is not None:
        before = load_head(start)
        source["start_sha256"] = str(before.tensors_sha256)
        pairs = _with_mined(pairs, before, phrases, opened, seed, monitor)
        begin = before.head.tensors()
    with work_folder(out) as work:
        options = FitOptions(seed, work=work, workers=workers, device=device, start=begin)
        history = fit_with_progress(head, pairs, held_out, options, experiment.name, monitor)
        return TrainedHead(
            experiment=experiment.name,
            kind=experiment.head,
            settings=settings,
            seed=seed,
            dataset=manifest.name,
            train_split=train_split,
            validation_split=validation_split,
            inputs=opened.inputs,
            made_from=source,
            word_vectors=None,
            history=history,
            created_by=created_by("torch", "numpy", "safetensors"),
            head=head,
        ).save(out)


def _with_mined(
    pairs: Pairs,
    before: TrainedHead,
    phrases: tuple[RegionPhrase, ...],
    opened: OpenSources,
    seed: int,
    monitor: Monitor,
) -> Pairs:
    """Return the pairs with the hard negatives of a trained head."""
    before.inputs.images.require(opened.truth, "region")
    before.inputs.captions.require(opened.texts, "phrase")
    keys = list({phrase_key(phrase.phrase): None for phrase in phrases})
    with monitor.progress(before.experiment, "image") as progress:
        mined = mine(
            before.head, phrases, keys, opened.texts, opened.truth, opened.proposals,
            opened.regions, most=opened.most, seed=seed, progress=progress,
        )  # fmt: skip
    having = int((mined.of_phrase.starts[1:] > mined.of_phrase.starts[:-1]).sum())
    monitor.log(
        f"{mined.found} proposals come nearer to a phrase than its true boxes; of {having} phrases "
        f"{len(mined.of_phrase.values)} are taken, {len(mined.region_ids)} boxes"
    )
    if not mined.region_ids:
        return pairs
    links = replace(
        links_of(pairs),
        mined=FeatureRows(opened.regions, mined.region_ids),
        mined_of_phrase=mined.of_phrase,
    )
    return replace(pairs, links=links)
