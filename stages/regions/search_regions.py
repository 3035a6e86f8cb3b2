"""`pipeline search --localize`: the box nearest to a phrase in each image."""

from functools import partial
from pathlib import Path
from typing import Any

import click

from pipeline.experiments.layout import NotMade
from stages.command import FOLDER, flag, option
from stages.console import CONSOLE, elapsed, log_done
from stages.experiment import project_of
from stages.searching import print_answers


class SearchRegions:
    """Addition of localized phrases to `pipeline search`."""

    OPTIONS = (
        flag(
            "--localize",
            "Find images by the box nearest to a phrase, in the file of `pipeline localize`.",
        ),
        option(
            "--marked",
            "With --localize: write the images as SVG with the box drawn over each to this folder.",
            FOLDER,
            metavar="DIR",
        ),
    )

    @staticmethod
    def instead(params: dict[str, Any], files: dict[str, Any]) -> bool:
        """Print one line per image: rank, score, id, file, box and first caption."""
        phrase, marked = params["sentence"], params["marked"]
        if not params["localize"]:
            if marked is not None:
                raise click.UsageError("--marked requires --localize")
            return False
        unused = ("queries", "image", "minus", "plus", "of", "around_mean", "approximate", "where")
        if phrase is None or any(params[name] for name in unused) or params.get("regularities"):
            raise click.UsageError("--localize accepts only a SENTENCE, --top, --marked and --json")
        experiment = params["experiment"]
        sources = region_sources_of(experiment, **files)
        from pipeline.regions.localization.region_searcher import RegionSearcher

        searcher = RegionSearcher(**sources, monitor=CONSOLE)
        (hits,) = searcher.by_phrases([phrase], top=params["top"])
        results = [
            {
                "rank": hit.rank,
                "score": hit.score,
                "id": hit.id,
                "file": str(hit.file),
                "box": list(hit.box),
                "caption": hit.caption,
            }
            for hit in hits
        ]
        answers = [{"query": {"phrase": phrase}, "results": results}]
        similarity = searcher.found.similarity
        print_answers(answers, params["as_json"], experiment=experiment, similarity=similarity)
        if marked is not None:
            from pipeline.web.pages.marked import write_marked

            write_marked(marked, phrase, hits)
        boxes = len(searcher.found.boxes)
        log_done(
            f"among {boxes} boxes of {len(searcher.found.image_ids)} images: {elapsed():.2f} s"
        )
        return True


def region_sources_of(
    experiment: str,
    embeddings: Path | None,
    dataset: Path | None,
    weights: str | None,
    split: str | None,
    **models: Any,
) -> dict[str, Any]:
    """Return the arguments of `RegionSearcher` but the monitor; `embeddings` are localizations."""
    if split is not None:
        raise click.UsageError("--localize excludes --split: a localization file has one split")
    from pipeline.regions.localization.search_by_name import find_region_sources
    from stages.plan import experiment_of

    params, layout = project_of(dataset)
    if embeddings is not None and not embeddings.is_file():
        raise NotMade(f"{embeddings} not found; `pipeline localize` makes localization files")
    return find_region_sources(
        experiment,
        layout,
        partial(experiment_of, params),
        remedy=f"`pipeline localize {experiment} --dataset {layout.dataset}`",
        localization=embeddings,
        **models,
    )
