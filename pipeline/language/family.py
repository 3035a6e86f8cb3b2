"""What language models add to the library; see `pipeline.store.families`."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipeline.language.captioning.caption_by_name import caption, caption_split, rerank, score
    from pipeline.language.captioning.captioner import Writing

__all__ = ["Writing", "caption", "caption_split", "rerank", "score"]

PUBLIC = {
    "Writing": "pipeline.language.captioning.captioner:Writing",
    "caption": "pipeline.language.captioning.caption_by_name:caption",
    "caption_split": "pipeline.language.captioning.caption_by_name:caption_split",
    "rerank": "pipeline.language.captioning.caption_by_name:rerank",
    "score": "pipeline.language.captioning.caption_by_name:score",
}

# Kinds of experiments of `pipeline.run` other than heads.
EXPERIMENTS = {"language models": "pipeline.language.steps:LANGUAGE_MODELS"}
