"""What clips and sound add to the commands; see `stages.additions`."""

PREPARE = {
    "clips": "stages.clips.prepare_clips:clips",
    "msrvtt": "stages.clips.prepare_clips:msrvtt",
    "msvd": "stages.clips.prepare_clips:msvd",
    "trecvid-vtt": "stages.clips.prepare_clips:trecvid_vtt",
}
EXTRACT = {"clips": "stages.clips.extract_clips:ExtractClips"}
LIST_RECIPES = {"clips": "stages.clips.listing:recipes"}
LIST_BACKBONES = {"clips": "stages.clips.listing:backbones"}
