"""What the search for near-duplicates adds to the library; see `pipeline.store.families`."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipeline.studies.near_duplicates.find import duplicates

__all__ = ["duplicates"]

PUBLIC = {"duplicates": "pipeline.studies.near_duplicates.find:duplicates"}
