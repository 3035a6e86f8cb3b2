"""`pipeline embed`: a trained head turns the features of a split into an embedding file."""

import time
from pathlib import Path

import click

from pipeline.cluster.place import place_of_work
from pipeline.datasets.manifest import MANIFEST_FILE, read_manifest
from pipeline.hashing import sha256_of_file
from pipeline.heads.data.pairs import Pairs, with_features
from pipeline.heads.data.rows import Features, Rows
from pipeline.heads.embed import embed_here
from pipeline.heads.errors import HeadError
from pipeline.heads.trained_head import embed_split, load_head
from pipeline.heads.workers import EmbeddingJob, embed_on_workers
from pipeline.progress import Stopwatch
from pipeline.retrieval.embeddings import write_embeddings
from pipeline.shards.feature_set import FeatureSet
from pipeline.summary import write_summary
from stages.cluster import cluster_options
from stages.console import CONSOLE, log_done, log_settings, progress_of
from stages.experiment import experiment_options, inputs_of
from stages.params import DATA, load_params


@click.command()
@experiment_options
@click.option(
    "--head",
    type=click.Path(path_type=Path),
    help="Folder of the trained head.  [default: data/heads/EXPERIMENT]",
)
@click.option("--split", help="Split to embed.  [default: the test split of params.yaml]")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Embedding file.  [default: data/embeddings/EXPERIMENT.h5]",
)
@cluster_options
def embed(
    experiment: str,
    head: Path | None,
    dataset: Path | None,
    split: str | None,
    images: Path | None,
    captions: Path | None,
    out: Path | None,
    leave_out_failed: bool,
    workers: int | None,
    scheduler: str | None,
    resources: dict[str, float],
    summary: Path | None,
) -> None:
    """Embed the images and captions of a split with a trained head.

    \b
    Example:
      pipeline embed --experiment wang2016-nonlinear-bidirectional-structure
    """
    place = place_of_work(workers, scheduler, resources)
    params = load_params()
    plan = params.experiment(experiment)
    head = head or DATA / "heads" / experiment
    dataset, images, captions = inputs_of(plan, params, dataset, images, captions)
    split = split or params.splits.test
    out = out or DATA / "embeddings" / f"{experiment}.h5"
    log_settings(
        "embed",
        experiment=experiment,
        head=head,
        dataset=dataset,
        split=split,
        average_captions=plan.average_captions,
        out=out,
        workers=workers,
        scheduler=scheduler,
    )
    started = time.monotonic()
    watch = Stopwatch()
    manifest = read_manifest(dataset)
    entries = manifest.select(split)
    trained = load_head(head)
    if trained.experiment != experiment:
        raise HeadError(
            f"{head} holds the head of experiment {trained.experiment!r}, not of {experiment!r}; "
            "give the right --head or --experiment"
        )
    image_set = FeatureSet(images)
    kept = with_features(entries, image_set) if leave_out_failed else entries

    def embedding(pairs: Pairs, queries: Rows) -> tuple[Features, Features]:
        with progress_of(experiment, "row") as progress:
            if not place.elsewhere:
                return embed_here(trained.head, pairs.images, queries, progress, watch)
            order = EmbeddingJob(
                head, images, captions, pairs.image_ids, pairs.caption_ids,
                tuple(pairs.image_of_caption.tolist()), plan.average_captions,
            )  # fmt: skip
            with place.executor(CONSOLE) as executor:
                return embed_on_workers(order, out, executor, progress, watch)

    embeddings = embed_split(
        trained,
        kept,
        image_set,
        FeatureSet(captions),
        {
            "dataset": manifest.name,
            "split": split,
            "manifest_sha256": sha256_of_file(dataset / MANIFEST_FILE),
        },
        plan.average_captions,
        embedding,
    )
    write_embeddings(out, embeddings)
    if failed := len(entries) - len(kept):
        log_done(f"{failed} images without features are left out")
    if without_caption := len(kept) - len(embeddings.image_ids):
        log_done(f"{without_caption} images without a caption are left out")
    log_done(
        f"{out}: {len(embeddings.image_ids)} images and {len(embeddings.caption_ids)} captions in "
        f"{embeddings.image_embeddings.shape[-1]} dimensions, similarity {embeddings.similarity}"
    )
    if summary:
        rows = len(embeddings.image_ids) + len(embeddings.caption_ids)
        facts = {"rows": rows, "images": len(embeddings.image_ids)}
        write_summary(
            summary, "embed", out, facts, rows, time.monotonic() - started, watch, place.name()
        )
