"""Published language models as data with a name, and their size for two cores.

A preset has the values of its paper, or, where that is silent, of the authors' program before it
(Kiros et al. 2014, ICML). `SMALL` is the size for a few thousand images, chosen on Flickr8k's dev
images.
"""

import difflib
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, Literal

from pipeline.heads.base import settings_from
from pipeline.language import LanguageError
from pipeline.language.model_types import LanguageExperiment, LanguageSettings

_PROGRAM = {
    "optimiser": "sgd", "learning_rate": 0.43, "momentum": 0.23, "batch_size": 40, "dropout": 0.15,
    "lr_decay": 0.99,
}  # fmt: skip
_OPEN = (
    "context, forward context, rate, batch, momentum and dropout: those of the program of Kiros et "
    "al. 2014 (ICML), three tags ahead; tags of the Penn Treebank by TextBlob's tagger; words seen "
    "4 times or more; perplexity on the validation split chooses the epoch, there BLEU"
)
_SC_NLM = LanguageExperiment(
    "kiros2014-sc-nlm",
    "sc-nlm",
    _PROGRAM,
    space="kiros2014-lstm",
    source="Kiros, Salakhutdinov & Zemel 2014, section 2.5",
    leaves_open=_OPEN,
)
_LSTM = LanguageExperiment(
    "kiros2014-lstm-decoder",
    "lstm-decoder",
    {"dim": 512, "word_dim": 512, "dropout": 0.5},
    images="vgg19-kiros-fc7",
    source="Kiros, Salakhutdinov & Zemel 2014, section 4, which plans it; Vinyals et al. 2015",
    leaves_open="all of it: the sizes are those of Vinyals et al.; the LSTM has peepholes",
)
_LITES = "+".join(f"efficientnet-lite{k}-pool" for k in range(3))

LANGUAGE_PRESETS: dict[str, LanguageExperiment] = {
    experiment.name: experiment
    for experiment in (
        replace(
            _SC_NLM,
            name="kiros2014-lbl",
            model="lbl",
            space="",
            source="Kiros, Salakhutdinov & Zemel 2014, section 2.3",
        ),
        replace(
            _SC_NLM,
            name="kiros2014-mlbl",
            model="multiplicative-lbl",
            source="Kiros, Salakhutdinov & Zemel 2014, section 2.4",
        ),
        _SC_NLM,
        _LSTM,
        replace(
            _SC_NLM,
            name="ours-sc-nlm",
            space="ours-lites-linear",
            source="no paper's; chosen on Flickr8K",
            leaves_open="measured with the features of the small size only",
        ),
        replace(
            _LSTM,
            name="ours-lstm-decoder",
            images=_LITES,
            source="no paper's; chosen on Flickr8K",
            leaves_open="measured with the features of the small size only",
        ),
    )
}
"""Every published language model, and ours, by name."""

_ADAM = {
    "optimiser": "adam", "learning_rate": 0.002, "momentum": 0.0, "batch_size": 100,
    "lr_decay": 0.5, "dropout": 0.3, "epochs": 10, "patience": 1,
}  # fmt: skip
_SMALL_LSTM = {"dim": 256, "word_dim": 256, "learning_rate": 0.002, "epochs": 10, "patience": 1}

SMALL: dict[str, Mapping[str, Any]] = {
    "kiros2014-lbl": {**_ADAM, "dim": 100},
    "kiros2014-mlbl": {**_ADAM, "content_noise": 0.6},
    "kiros2014-sc-nlm": {**_ADAM, "content_noise": 0.6},
    "ours-sc-nlm": {**_ADAM, "content_noise": 0.6},
    "kiros2014-lstm-decoder": _SMALL_LSTM,
    "ours-lstm-decoder": _SMALL_LSTM,
}
"""Name of a preset -> settings over those of the preset."""

_POOLED_IMAGES = "efficientnet-lite0-pool"


def resolve_language_experiment(
    name: str,
    *,
    size: Literal["paper", "small", "tiny"] = "small",
    settings: Mapping[str, Any] | None = None,
) -> LanguageExperiment:
    """Return a language model at a size; "tiny" is "small".

    Parameters
    ----------
    name : in `LANGUAGE_PRESETS`.
    size : "paper", the values of the preset, or "small", what `SMALL` makes of them.
    settings : over those of the preset.

    Raises
    ------
    LanguageError
        No such preset; the nearest names are listed.
    HeadError
        A setting is unknown or out of range.
    """
    if name not in LANGUAGE_PRESETS:
        near = difflib.get_close_matches(name, LANGUAGE_PRESETS, n=3, cutoff=0.4)
        raise LanguageError(
            f"no language model is published as {name!r}; did you mean "
            f"{' or '.join(near or LANGUAGE_PRESETS)}?"
        )
    found = LANGUAGE_PRESETS[name]
    images = found.images
    small: Mapping[str, Any] = {}
    if size != "paper":
        small = SMALL[name]
        images = images if "+" in images or not images else _POOLED_IMAGES
    values = {**found.settings, **small, **(settings or {})}
    checked = settings_from(LanguageSettings, values, found.model)
    differing = {
        f.name: getattr(checked, f.name)
        for f in fields(checked)
        if getattr(checked, f.name) != f.default
    }
    return replace(found, settings=differing, images=images)
