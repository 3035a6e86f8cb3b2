"""The job of `pipeline text`: the captions or phrases of a dataset become feature shards."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pipeline.cluster.place import Place
from pipeline.datasets.manifest import read_manifest
from pipeline.datasets.splits import require_captions
from pipeline.devices import AUTO, choose_device
from pipeline.jobs.finished import FinishedRecord
from pipeline.jobs.make_features import make_features
from pipeline.jobs.options import Storage
from pipeline.progress import QUIET, Monitor
from pipeline.shards.index import FeatureIndex
from pipeline.text.caption_source import CaptionSource, caption_header
from pipeline.text.encoder_plans import plan_encoder
from pipeline.text.encoders.base import CaptionEncoder
from pipeline.text.fitting import Fitting, fit_encoder
from pipeline.text.refit import follow_captions
from pipeline.text.unique_phrases import unique_phrases

_SHOWN = 5  # captions without a known word that are named


@dataclass(frozen=True)
class Captions:
    """Which captions are encoded, and what their encoder is fitted to.

    Attributes
    ----------
    split : only the captions of this split; None: all.
    phrases : encode, and fit to, the distinct phrases of the regions instead of captions.
    fit_split : split whose captions vocabularies, codebooks and components are fitted to.
    fitted : folder of the fitted files; None: `encoder_folder(out)`.
    codebooks : folder of shared codebooks: loaded from there, or fitted and stored there.
    device : where principal components are computed: a torch device, or "auto" for the best of
        this machine.
    trained_on : datasets that a model or the word vectors were trained on, for the shards' header;
        names separated by commas. None: as the model's card or tag says. It changes no feature.
    """

    split: str | None = None
    phrases: bool = False
    fit_split: str = "train"
    fitted: str | Path | None = None
    codebooks: str | Path | None = None
    device: str = AUTO
    trained_on: str | None = None


def encode(
    dataset: str | Path,
    out: str | Path,
    *,
    encoder: str,
    captions: Captions | None = None,
    storage: Storage | None = None,
    place: Place | None = None,
    monitor: Monitor = QUIET,
    **options: Any,
) -> FeatureIndex:
    """Encode the captions of a dataset, or the distinct phrases of its regions, into shards.

    Vocabularies, codebooks and principal components are fitted to the captions of one split and
    stored in a folder next to the shards. Fitted files and finished rows of an earlier call are
    reused; rows of captions that have changed since are recomputed. The same call writes the same
    bytes, interrupted or not, on any number of workers. With `Storage.update` an encoder that was
    fitted to other captions, or with other options, is fitted again.

    Parameters
    ----------
    dataset : str or Path. Folder of a prepared dataset.
    out : str or Path. Folder of the shards; its row ids are caption ids, or `RegionPhrase.key` of
        phrases.
    encoder : str. Names of `pipeline.text.encoder_plans.ENCODERS`, joined by "+" for a
        concatenation.
    captions : Captions or None. Which captions, and what the encoder is fitted to; None: the
        defaults.
    storage, place, monitor : see `pipeline.jobs.make_features.make_features`.
    options : object. Of the encoder, such as `vectors` or `pca`; see `plan_encoder`.

    Returns
    -------
    FeatureIndex
        Of the finished shards.

    Raises
    ------
    EncoderError
        No encoder has this name or these options, or `fitted` holds another one and is not updated.
    PipelineError
        The dataset, word vectors or fitted files cannot be read, or the shards not be written.

    Examples
    --------
    >>> encode("data/mine", "data/text/mine/bow", encoder="bow", vocabulary="min-3")
    """
    out, how = Path(out), captions or Captions()
    folder = encoder_folder(out) if how.fitted is None else Path(how.fitted)
    plan = plan_encoder(encoder, **options)
    storage, place = storage or Storage(), place or Place()
    rows = [how.split, how.phrases, how.trained_on, storage.rows_per_shard, storage.compress]
    finished = FinishedRecord(
        out, ["text", plan.to_json(), how.fit_split, *rows], Path(dataset), plan.files(), [folder]
    )
    if (index := finished.nothing_to_do("caption", place, monitor)) is not None:
        return index
    manifest = read_manifest(Path(dataset))
    require_captions(manifest)
    texts_of = partial(unique_phrases, dataset) if how.phrases else manifest.captions
    chosen = texts_of(how.split)
    fitting = Fitting(
        texts_of(how.fit_split).texts,
        manifest.name,
        how.fit_split,
        None if how.codebooks is None else Path(how.codebooks),
        choose_device(how.device, monitor) if plan.pca else "cpu",
        monitor,
    )
    if storage.update:
        made = follow_captions(plan, folder, fitting, chosen.texts, out)
    else:
        made = fit_encoder(plan, folder, fitting, chosen.texts)
    monitor.log(f"{made.name} takes {made.memory / 1e6:.0f} MB of memory")
    header = caption_header(made, manifest.name, how.trained_on)
    source = CaptionSource(header, chosen.ids, chosen.texts, made, folder)
    index = make_features(source, out, storage=storage, place=place, monitor=monitor)
    notes = _unknown(made, chosen.texts, chosen.ids)
    for note in notes:
        monitor.log(note)
    finished.write(notes)
    return index


def encoder_folder(out: str | Path) -> Path:
    """Return the folder of what is fitted for the shards in `out`, unless another is given."""
    out = Path(out)
    return out.with_name(f"{out.name}.encoder")


def _unknown(encoder: CaptionEncoder, texts: Sequence[str], ids: Sequence[str]) -> list[str]:
    """Return how many words the encoder does not know, and some captions without a known word."""
    notes = []
    for name, report in encoder.reports(texts).items():
        notes.append(f"{name}: {report.text()}")
        unknown = report.unknown_captions[:_SHOWN]
        notes += [f"no known word: {ids[position]}" for position in unknown]
    return notes
