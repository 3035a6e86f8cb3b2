"""What language models add to the commands; see `stages.additions`."""

from typing import Literal

TITLE = "Regions, clips and language"

COMMANDS = {
    "caption": "stages.language.caption:caption",
    "rerank": "stages.language.rerank:rerank",
    "score": "stages.language.score:score",
}
HELP = {
    "caption": "Generate captions of images.",
    "rerank": "Rerank generated captions with a retrieval experiment.",
    "score": "Score generated captions against references.",
}
LIST_EXPERIMENTS = {"language": "stages.language.family:experiments"}


def experiments(size: Literal["tiny", "small", "paper"]) -> list[tuple[str, str, str, str, str]]:
    """Return the name, kind, image features, caption features and source of each model."""
    from pipeline.language.presets import LANGUAGE_PRESETS

    return [
        (name, "language model", preset.at(size).images, "", preset.paper.source)
        for name, preset in LANGUAGE_PRESETS.items()
    ]
