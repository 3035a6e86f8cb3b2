"""Language models for `pipeline list experiments`."""


def experiments() -> list[tuple[str, str, str, str, str]]:
    """Return the name, kind, image features, caption features and source of each model."""
    from pipeline.language.presets import LANGUAGE_PRESETS

    return [
        (name, "language model", model.paper.images, "", model.paper.source)
        for name, model in LANGUAGE_PRESETS.items()
    ]
