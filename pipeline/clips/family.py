"""What clips and sound add to the library; see `pipeline.store.families`."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipeline.clips.extract_clips import extract_clips

__all__ = ["extract_clips"]

PUBLIC = {"extract_clips": "pipeline.clips.extract_clips:extract_clips"}

# By the `media` of a dataset; `pipeline.images` has the same for "images".
EXTRACT = {"clips": "pipeline.clips.extract_clips:extract_clips"}
RECIPE = {"clips": "pipeline.clips.recipes:recipe_of_clips"}
SHOWN = {"clips": "pipeline.clips.contact_sheet:contact_sheet"}
