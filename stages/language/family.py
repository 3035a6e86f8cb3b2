"""What language models add to the commands; see `stages.additions`."""

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
LIST_EXPERIMENTS = {"language": "stages.language.listing:experiments"}
