"""What regions add to the library; see `pipeline.store.families`."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipeline.regions.features import Regions, extract_regions
    from pipeline.regions.localization.evaluate_localization import (
        evaluate_localized,
    )
    from pipeline.regions.localization.localize_by_name import localize
    from pipeline.regions.localization.region_searcher import RegionSearcher
    from pipeline.regions.localization.search_by_name import (
        open_region_searcher,
    )
    from pipeline.regions.proposal_source import Proposer
    from pipeline.regions.proposals import read_proposals
    from pipeline.regions.propose import propose

__all__ = [
    "Proposer",
    "RegionSearcher",
    "Regions",
    "evaluate_localized",
    "extract_regions",
    "localize",
    "open_region_searcher",
    "propose",
    "read_proposals",
]

PUBLIC = {
    "Proposer": "pipeline.regions.proposal_source:Proposer",
    "RegionSearcher": "pipeline.regions.localization.region_searcher:RegionSearcher",
    "Regions": "pipeline.regions.features:Regions",
    "evaluate_localized": (
        "pipeline.regions.localization.evaluate_localization:evaluate_localized"
    ),
    "extract_regions": "pipeline.regions.features:extract_regions",
    "localize": "pipeline.regions.localization.localize_by_name:localize",
    "open_region_searcher": ("pipeline.regions.localization.search_by_name:open_region_searcher"),
    "propose": "pipeline.regions.propose:propose",
    "read_proposals": "pipeline.regions.proposals:read_proposals",
}
