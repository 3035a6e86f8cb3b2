"""Published language models as named data, each with a size for two cores.

A preset has the values of its paper or, where it is silent, of the authors' earlier program (Kiros
et al. 2014, ICML). The small size is for a few thousand images, tuned on Flickr8k's dev images.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pipeline.heads.base import settings_from
from pipeline.heads.experiments import non_default
from pipeline.heads.presets.preset import POOLED_IMAGES, Size
from pipeline.language import LanguageError
from pipeline.language.model_types import (
    SPACY_TAGS,
    UNIVERSAL_TAGS,
    LanguageExperiment,
    LanguageSettings,
)
from pipeline.store.wording import did_you_mean


@dataclass(frozen=True)
class LanguagePreset:
    """A published language model with the values of its paper and of the small size."""

    paper: LanguageExperiment
    small: Mapping[str, Any]  # changed settings at the sizes "small" and "tiny"
    small_images: str | None = None  # image recipe at these sizes; None: that of the paper

    def at(self, size: Size) -> LanguageExperiment:
        """Return the model with the values of a size."""
        if size == "paper":
            return self.paper
        return replace(
            self.paper,
            settings={**self.paper.settings, **self.small},
            images=self.small_images or self.paper.images,
        )


def _variant(
    base: LanguagePreset, small: Mapping[str, Any] | None = None, **changed: Any
) -> LanguagePreset:
    """Return a preset with changed values of the paper, and further ones of the small size."""
    paper = replace(base.paper, **changed)
    return replace(base, paper=paper, small={**base.small, **(small or {})})


_OPEN = (
    "context, learning rate, batch size, momentum and dropout are those of the program of Kiros et "
    "al. 2014 (ICML); words with 4 occurrences or more; the epoch is selected by validation "
    "perplexity, in the paper by BLEU"
)
_SC_NLM = LanguagePreset(
    LanguageExperiment(
        "kiros2014-sc-nlm",
        "sc-nlm",
        {
            "optimiser": "sgd", "learning_rate": 0.43, "momentum": 0.23, "batch_size": 40,
            "dropout": 0.15, "lr_decay": 0.99,
        },
        space="kiros2014-lstm",
        source="Kiros, Salakhutdinov & Zemel 2014, section 2.5",
        leaves_open=f"{_OPEN}; three tags ahead, as the program's words; tags of the Penn Treebank "
        "from TextBlob's tagger",
    ),
    small={
        "optimiser": "adam", "learning_rate": 0.002, "momentum": 0.0, "batch_size": 100,
        "lr_decay": 0.5, "dropout": 0.3, "epochs": 10, "patience": 1, "content_noise": 0.6,
    },
)  # fmt: skip
_LBL = _variant(
    _SC_NLM,
    {"dim": 100, "content_noise": 0.0},
    name="kiros2014-lbl",
    model="lbl",
    space="",
    source="Kiros, Salakhutdinov & Zemel 2014, section 2.3",
    leaves_open=_OPEN,
)
_MLBL = _variant(
    _SC_NLM,
    name="kiros2014-mlbl",
    model="multiplicative-lbl",
    source="Kiros, Salakhutdinov & Zemel 2014, section 2.4",
    leaves_open=_OPEN,
)
_ADDITIVE = _variant(
    _MLBL,
    {"dim": 100},
    name="kiros2014-mlbl-additive",
    model="additive-lbl",
    source="Kiros, Salakhutdinov & Zemel 2014, section 2.4; MLBL-B of Kiros et al. 2014 (ICML)",
)
_TENSOR = _variant(
    _MLBL,
    name="kiros2014-mlbl-tensor",
    model="tensor-lbl",
    settings={**_MLBL.paper.settings, "dim": 16},
    source="Kiros, Salakhutdinov & Zemel 2014, section 2.4: the unfactored tensor, which they "
    "define and do not train",
    leaves_open=f"{_OPEN}; K = 16, since at K = G = 300 the tensor of Flickr8K's 2,656 words "
    "has 239 million numbers, at K = 16 12.7 million; E, defined by factors, is a table",
)
_UNIVERSAL = _variant(
    _SC_NLM,
    name="kiros2014-sc-nlm-universal",
    tags=UNIVERSAL_TAGS,
    source="Kiros, Salakhutdinov & Zemel 2014, section 2.5: other structure variables",
    leaves_open="as kiros2014-sc-nlm, with the 12 universal tags of Petrov et al. 2012",
)
_SPACY = _variant(
    _SC_NLM,
    name="kiros2014-sc-nlm-spacy",
    tags=SPACY_TAGS,
    leaves_open="as kiros2014-sc-nlm, with tags from spaCy's tagger",
)
_CORPUS = _variant(
    _SC_NLM,
    name="kiros2014-sc-nlm-corpus",
    corpus=True,
    source="Kiros, Salakhutdinov & Zemel 2014, section 2.5: also trained on text without "
    "images, a possibility that they mention",
    leaves_open="as kiros2014-sc-nlm, with the captions' vocabulary; conditioning sentences "
    "and tag sequences of generation are those of the captions",
)
_OF_IMAGES = _variant(
    _SC_NLM,
    {"content_noise": 0.0},
    name="kiros2014-sc-nlm-images",
    points="images",
    source="Kiros, Salakhutdinov & Zemel 2014, section 2.5: conditioned on the image embedding "
    "in training, an alternative that they mention",
)
_LSTM = LanguagePreset(
    LanguageExperiment(
        "kiros2014-lstm-decoder",
        "lstm-decoder",
        {"dim": 512, "word_dim": 512, "dropout": 0.5},
        images="vgg19-kiros-fc7",
        source="Kiros, Salakhutdinov & Zemel 2014, section 4, future work; Vinyals et al. 2015",
        leaves_open="all details: sizes are those of Vinyals et al.; the LSTM has peepholes",
    ),
    small={"dim": 256, "word_dim": 256, "learning_rate": 0.002, "epochs": 10, "patience": 1},
    small_images=POOLED_IMAGES,
)
_ATTENTION = LanguagePreset(
    LanguageExperiment(
        "xu2015-soft-attention",
        "attention-decoder",
        {
            "dim": 512, "word_dim": 512, "dropout": 0.5, "batch_size": 64, "attention_penalty": 1.0,
        },
        images="resnet152-grid14",
        source="Xu et al. 2015, soft attention",
        leaves_open="sizes, learning rate and penalty weight; ResNet-152's 14 x 14 cells, in the "
        "paper VGG's; Adam, in the paper RMSProp on Flickr8k; the epoch is selected by validation "
        "perplexity, in the paper by BLEU",
    ),
    small={
        "dim": 256, "word_dim": 256, "batch_size": 100, "learning_rate": 0.002, "epochs": 10,
        "patience": 1,
    },
    small_images="efficientnet-lite0-grid",
)  # fmt: skip
_OURS_SC_NLM = _variant(
    _SC_NLM,
    name="ours-sc-nlm",
    space="ours-linear",
    source="not published; tuned on Flickr8K",
    leaves_open="measured with the features of the small size only",
)
LANGUAGE_PRESETS: dict[str, LanguagePreset] = {
    preset.paper.name: preset
    for preset in (
        _LBL, _ADDITIVE, _MLBL, _TENSOR, _SC_NLM, _UNIVERSAL, _SPACY, _CORPUS, _OF_IMAGES,
        _LSTM, _ATTENTION, _OURS_SC_NLM,
    )
}  # fmt: skip
"""Language models by name: every published one, and ours."""


def is_published(name: str) -> bool:
    """Return whether a name is a published language model, possibly as NAME@RECIPE."""
    return name.partition("@")[0] in LANGUAGE_PRESETS


def resolve_language_experiment(
    name: str,
    *,
    size: Size = "small",
    settings: Mapping[str, Any] | None = None,
) -> LanguageExperiment:
    """Return a language model of `LANGUAGE_PRESETS` at a size; "tiny" is "small".

    NAME@RECIPE is the model on other image features: its own, or those of its space.
    """
    base, _, images = name.partition("@")
    if base not in LANGUAGE_PRESETS:
        hint = did_you_mean(name, LANGUAGE_PRESETS)
        raise LanguageError(f"no language model is published as {name!r}; {hint}")
    experiment = LANGUAGE_PRESETS[base].at(size)
    if "@@" in name:
        raise LanguageError(f"{name!r}: {base} writes words, and reads no other caption features")
    if images:
        if not (experiment.space or experiment.images):
            raise LanguageError(f"{name!r}: {base} is conditioned on no image; use that name")
        space = experiment.space and f"{experiment.space}@{images}"
        images = experiment.images and images
        experiment = replace(experiment, name=name, space=space, images=images)
    values = {**experiment.settings, **(settings or {})}
    checked = settings_from(LanguageSettings, values, experiment.model)
    return replace(experiment, settings=non_default(checked))
