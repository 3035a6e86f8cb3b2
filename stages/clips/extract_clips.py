"""`pipeline extract` on a dataset of clips."""

from functools import partial
from typing import Any

import click

from stages.additions import Job
from stages.command import option


class ExtractClips:
    """Addition of clips to `pipeline extract`."""

    OPTIONS = (
        option(
            "--frames",
            "Frames of clips: every:SECONDS, fps:NUMBER, even:NUMBER or all.  "
            "[default: the recipe's]",
        ),
        option(
            "--over-frames",
            "How the outputs of a clip's frames are pooled.  [default: mean]",
            click.Choice(["mean", "max", "halves"]),
        ),
    )

    @staticmethod
    def job(request: dict[str, Any]) -> Job | None:
        """Return the job of a dataset of clips, or of options for clips; else None."""
        from pipeline.datasets.manifest import read_media

        frames, over = request["frames"], request["over_frames"]
        of_clips = frames or over or request["compute"].codebook
        if request["dataset"] is None or not (
            of_clips or read_media(request["dataset"]) == "clips"
        ):
            return None
        from pipeline.clips.extract_clips import extract_clips
        from pipeline.clips.recipes import names_with

        return partial(extract_clips, recipe=names_with(request["recipe"], frames, over))
