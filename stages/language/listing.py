"""Language models for `pipeline list experiments`."""

from typing import Literal


def experiments(size: Literal["tiny", "small", "paper"]) -> list[tuple[str, str, str, str, str]]:
    """Return the name, kind, image features, caption features and source of each model."""
    from pipeline.language.presets import LANGUAGE_PRESETS

    return [
        (name, "language model", preset.at(size).images, "", preset.paper.source)
        for name, preset in LANGUAGE_PRESETS.items()
    ]
