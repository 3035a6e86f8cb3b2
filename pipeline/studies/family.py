"""What the studies add to the library; see `pipeline.store.families`."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipeline.studies.claims.claim import read_claims
    from pipeline.studies.claims.compare import compare
    from pipeline.studies.claims.judge import judge
    from pipeline.studies.probes.probe_by_name import probe
    from pipeline.studies.relevance.evaluate_relevance import judged_by
    from pipeline.studies.scenes.draw_scenes import draw_scenes
    from pipeline.studies.scenes.moving.draw_clips import draw_moving_scenes

__all__ = [
    "compare",
    "draw_moving_scenes",
    "draw_scenes",
    "judge",
    "judged_by",
    "probe",
    "read_claims",
]

PUBLIC = {
    "compare": "pipeline.studies.claims.compare:compare",
    "draw_moving_scenes": "pipeline.studies.scenes.moving.draw_clips:draw_moving_scenes",
    "draw_scenes": "pipeline.studies.scenes.draw_scenes:draw_scenes",
    "judge": "pipeline.studies.claims.judge:judge",
    "judged_by": "pipeline.studies.relevance.evaluate_relevance:judged_by",
    "probe": "pipeline.studies.probes.probe_by_name:probe",
    "read_claims": "pipeline.studies.claims.claim:read_claims",
}

# What is true of a dataset's images beyond their captions; see `pipeline.datasets.image_truth`.
TRUTH = {"scenes": "pipeline.studies.scenes.drawn_truth:drawn_truth"}
