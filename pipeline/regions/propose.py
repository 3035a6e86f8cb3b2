"""The job of `pipeline propose`: boxes of every image of a dataset, as shards."""

from pathlib import Path

from pipeline.datasets.manifest import NO_PICTURES, read_manifest
from pipeline.datasets.regions import has_phrases, read_phrases
from pipeline.regions import RegionError
from pipeline.regions.proposal_source import ProposalSource, Proposer, method_of
from pipeline.regions.proposals import proposals_header, read_proposals
from pipeline.regions.recall import proposal_recall
from pipeline.store.files import write_json
from pipeline.store.jobs.make_features import make_features
from pipeline.store.jobs.options import Compute, Selection, Storage
from pipeline.store.progress import QUIET, Monitor
from pipeline.store.shards.index import FeatureIndex
from pipeline.store.workers.place import Place

RECALL_FILE = "recall.json"


def propose(
    dataset: str | Path,
    out: str | Path,
    *,
    proposer: Proposer,
    select: Selection | None = None,
    storage: Storage | None = None,
    compute: Compute | None = None,
    place: Place | None = None,
    monitor: Monitor = QUIET,
) -> FeatureIndex:
    """Propose boxes on a dataset's images, and write them as shards.

    An unreadable image keeps its row, without boxes and with a reason; boxes of changed images are
    recomputed. If the dataset has phrases with boxes, the recall of the proposals is logged and
    written next to the shards, as `recall.json`.

    Parameters
    ----------
    dataset : str or Path. Folder of a prepared dataset.
    out : str or Path. Output folder.
    proposer : Proposer. Method and settings.
    select : Selection or None. Images to process; None: all.
    storage, place, monitor : see `pipeline.extract`.
    compute : Compute or None. Only `threads` is used, the number of images processed at once; None:
        one per core.

    Returns
    -------
    FeatureIndex
        Index of the finished shards, with images as rows: (most, 5) float32, x0 y0 x1 y1 and score,
        best first, padded with zeros. `read_proposals` reads them.

    Raises
    ------
    WrongUsage
        The method is unknown, or a file is missing or does not apply.
    DatasetError
        The dataset cannot be read, or lacks the phrases with boxes that the method needs.
    RegionError
        The method is not available, or there is no box at all.
    FileReadError, ShardError
        The system failed; finished rows are kept.

    Examples
    --------
    >>> pipeline.propose(
    ...     "data/mine", "data/proposals/mine/grid", proposer=pipeline.Proposer("grid", number=50)
    ... ).rows
    24
    """
    select, compute = select or Selection(), compute or Compute()
    manifest = read_manifest(dataset).require("images", "pipeline propose", NO_PICTURES)
    entries = manifest.select(select.split)[: select.limit]
    ids = [entry.id for entry in entries]
    method = method_of(proposer, Path(dataset), select.split)
    most = proposer.number
    if method.boxes is not None:
        if not any(image in method.boxes for image in ids):
            raise RegionError(
                f"{proposer.boxes or dataset} has no boxes for the {len(ids)} images; its ids are "
                f"like {next(iter(method.boxes), 'none')!r}, the dataset's like {ids[0]!r}"
            )
        if proposer.method == "ground-truth":
            most = max((len(method.boxes[i]) for i in ids if i in method.boxes), default=1)
    header = proposals_header(method, most, manifest.name)
    files, named = manifest.files(entries), (proposer, Path(dataset), select.split)
    source = ProposalSource(header, ids, files, method, named, compute.threads)
    index = make_features(source, out, storage=storage, place=place, monitor=monitor)
    if has_phrases(dataset):
        _write_recall(Path(out), Path(dataset), select.split, {*ids}, monitor)
    return index


def _write_recall(
    out: Path, dataset: Path, split: str | None, images: set[str], monitor: Monitor
) -> None:
    phrases = [phrase for phrase in read_phrases(dataset, split) if phrase.image in images]
    recall = proposal_recall(read_proposals(out), phrases)
    write_json(out / RECALL_FILE, recall)
    shares = ", ".join(
        f"{value:.1f} % at {key.rpartition('_')[2]}"
        for key, value in recall.items()
        if key.startswith("recall_at_")
    )
    monitor.log(
        f"recall at IoU 0.5 over {recall['phrases']} phrases: {shares} proposals; "
        f"{recall['mean_proposals']} per image, {recall['images_without_proposals']} images without"
    )
