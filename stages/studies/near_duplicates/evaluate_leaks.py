"""`pipeline evaluate --leaks`: ranked images with a near-duplicate among other images."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from pipeline.store.errors import WrongUsage
from stages.additions import EvaluateAddition
from stages.command import FEATURES, option
from stages.console import CONSOLE


class EvaluateLeaks(EvaluateAddition):
    """Addition of near-duplicates to `pipeline evaluate`."""

    OPTIONS = (
        option(
            "--leaks",
            "Features of all splits: log how many ranked images have a near-duplicate among "
            "the other images.",
            FEATURES,
            metavar="FEATURES",
        ),
        option(
            "--leaks-images",
            "Prepared dataset or folder of the images of --leaks: confirm near-duplicates by "
            "comparing pixels, which also finds crops.",
            click.Path(path_type=Path, exists=True),
            metavar="DIR",
        ),
    )

    @staticmethod
    def instead(params: dict[str, Any]) -> bool:
        """Raise if the images of no features are named."""
        if params["leaks_images"] is not None and params["leaks"] is None:
            raise WrongUsage("--leaks-images needs --leaks, which has the features")
        return False

    @staticmethod
    def log(params: dict[str, Any], files: Sequence[Path]) -> None:
        """Log how many ranked images have a near-duplicate."""
        if params["leaks"] is None:
            return
        from pipeline.retrieval.embedding_file import read_embeddings
        from pipeline.retrieval.ranking.splits import of_split
        from pipeline.studies.near_duplicates.leaks import find_leaks

        for file in files:
            ranked = of_split(read_embeddings(file), params["split"]).image_ids
            find_leaks(ranked, params["leaks"], images=params["leaks_images"], monitor=CONSOLE)
