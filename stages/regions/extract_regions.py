"""`pipeline extract --regions`: features of proposals instead of whole images."""

from functools import partial
from typing import Any

import click

from stages.additions import Job
from stages.command import PATH, option


class ExtractRegions:
    """Addition of regions to `pipeline extract`."""

    OPTIONS = (
        option(
            "--regions",
            "Folder of proposals: extract features of these regions, not of whole images.",
            PATH,
        ),
        option(
            "--context",
            "With --regions: margin on every side of a region, as a fraction of its sides.  "
            "[default: 0]",
            click.FloatRange(0),
        ),
    )

    @staticmethod
    def job(request: dict[str, Any]) -> Job | None:
        """Return the job of a command line with --regions, else None."""
        if request["regions"] is None:
            if request["context"] is not None:
                raise click.UsageError("--context needs --regions")
            return None
        from pipeline.regions.features import Regions, extract_regions

        regions = Regions(request["regions"], request["context"] or 0.0)
        return partial(extract_regions, recipe=request["recipe"], regions=regions)
