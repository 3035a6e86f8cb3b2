"""The job of `pipeline text`: encode the captions or phrases of a dataset as feature shards."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pipeline.datasets.manifest import read_manifest
from pipeline.datasets.splits import require_captions
from pipeline.store.builder.locking import WORK_FOLDER
from pipeline.store.current.record import made_from
from pipeline.store.current.snapshot import Snapshot, snapshot_file
from pipeline.store.devices import choose_device
from pipeline.store.jobs.make_features import make_features
from pipeline.store.jobs.nothing_to_do import nothing_to_do
from pipeline.store.jobs.options import Storage
from pipeline.store.objects.mirror import mirrored
from pipeline.store.progress import QUIET, Monitor
from pipeline.store.shards.index import FeatureIndex
from pipeline.store.workers.place import Place
from pipeline.text.caption_source import CaptionSource, caption_header, unique_phrases
from pipeline.text.captions import Captions
from pipeline.text.encoders.base import CaptionEncoder
from pipeline.text.encoders.plan_json import plan_of
from pipeline.text.encoders.registry import encoder_options
from pipeline.text.fitting import Fitting, fit_encoder, follow_captions

_SHOWN = 5  # number of captions without a known word to name in a message


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

    As `pipeline.extract`, but of captions, and with encoders that are fitted first: vocabularies,
    codebooks and principal components are fitted on the captions of one split and saved in a folder
    next to the shards, from which `pipeline.load_encoder` encodes new sentences. Fitted files and
    finished rows of an earlier call are reused, as are codebooks that another output in the same
    folder fitted on the same words; rows of changed captions are recomputed. The result is
    deterministic: interruptions and the number of workers do not change its bytes. With
    `Storage.update`, an encoder that was fitted on other captions or with other options is fitted
    again.

    Parameters
    ----------
    dataset : str or Path. Folder of a prepared dataset.
    out : str or Path. Output folder, or its URL in a store. Row ids are caption ids, or
        `RegionPhrase.key` of phrases.
    encoder : str. Names in `pipeline.text.encoders.registry.KINDS`, joined by "+" for a
        concatenation, or "sentence-transformer:MODEL", "open-clip:MODEL.TAG" and "transformers:ID"
        for models of libraries.
    captions : Captions or None. Captions to encode and to fit on; None: defaults.
    storage, place, monitor : see `pipeline.make_features`.
    options : object. Options of the encoder; None selects the default. `tokenizer`, `vocabulary`,
        `layout`, `max_length`, `weights`, `pooling` and `tagger` apply to every encoder that has
        them; `vectors` is a source of `load_vectors` (default: packaged GloVe), `wordnet` the
        folder of a WordNet, and `pca` the number of principal components. Codebooks have
        `components`, `sample`, `seed` and `codebook_words`, the words to fit on: all of the
        "source", or those of the "training" captions. The latter is the default for stored vectors,
        which have the words of all splits, and for sentence transformers, which have no word list.

    Returns
    -------
    FeatureIndex
        Index of the finished shards; rows are float32.

    Raises
    ------
    UnknownName
        The encoder, or a tokenizer, layout, vocabulary rule or tagger is unknown.
    EncoderError
        The encoder lacks an option or cannot be fitted, or `fitted` has another encoder and
        `update` is off.
    PipelineError
        The dataset, word vectors or fitted files cannot be read, or shards cannot be written.

    Examples
    --------
    >>> pipeline.encode(
    ...     "data/mine", "data/text/mine/min-3", encoder="bow", vocabulary="min-3"
    ... ).header.recipe["encoder"]
    'bow'
    """
    out, how = Path(out), captions or Captions()
    folder = encoder_folder(out) if how.fitted is None else Path(how.fitted)
    with mirrored(folder, monitor.log) as here:
        return _encode(Path(dataset), out, here, encoder, how, storage, place, monitor, options)


def _encode(
    dataset: Path,
    out: Path,
    folder: Path,
    encoder: str,
    how: Captions,
    storage: Storage | None,
    place: Place | None,
    monitor: Monitor,
    options: Mapping[str, Any],
) -> FeatureIndex:
    """Encode captions, with the encoder's fitted files in `folder`."""
    chosen = encoder_options(encoder, **options)
    storage, place = storage or Storage(), place or Place()
    record = made_from(how, storage, encoder=plan_of(chosen))
    snapshot = Snapshot(snapshot_file(out), record, Path(dataset))
    if (index := nothing_to_do(snapshot, out, "caption", place, monitor)) is not None:
        return index
    manifest = read_manifest(Path(dataset))
    require_captions(manifest)
    texts_of = partial(unique_phrases, dataset) if how.phrases else manifest.captions
    selected = texts_of(how.split)
    fitting = Fitting(
        texts_of(how.fit_split).texts,
        manifest.name,
        how.fit_split,
        None if how.codebooks is None else Path(how.codebooks),
        choose_device(how.device, monitor) if options.get("pca") else "cpu",
        monitor,
        work=folder.absolute().parent / WORK_FOLDER,
    )
    if storage.update:
        fitted = follow_captions(chosen, folder, fitting, selected.texts, folder.parent / out.name)
    else:
        fitted = fit_encoder(chosen, folder, fitting, selected.texts)
    monitor.log(f"{fitted.name} needs {fitted.memory / 1e6:.0f} MB of memory")
    header = caption_header(fitted, manifest.name, how.trained_on)
    source = CaptionSource(header, selected.ids, selected.texts, fitted, folder)
    index = make_features(source, out, storage=storage, place=place, monitor=monitor)
    notes = _unknown(fitted, selected.texts, selected.ids)
    for note in notes:
        monitor.log(note)
    snapshot.write([out.resolve(), folder.resolve()], notes)
    return index


def encoder_folder(out: str | Path) -> Path:
    """Return the default folder of fitted files for the shards in `out`."""
    out = Path(out)
    return out.with_name(f"{out.name}.encoder")


def _unknown(encoder: CaptionEncoder, texts: Sequence[str], ids: Sequence[str]) -> list[str]:
    """Return lines on out-of-vocabulary words, and on captions without a known word."""
    notes = []
    for name, report in encoder.reports(texts).items():
        notes.append(f"{name}: {report.text()}")
        unknown = report.unknown_captions[:_SHOWN]
        notes += [f"no known word: {ids[position]}" for position in unknown]
    return notes
