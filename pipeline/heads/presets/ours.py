"""Our own systems, tuned on Flickr8K, and CLIP of Radford et al. 2021, zero-shot."""

from dataclasses import replace

from pipeline.heads.architectures.cca import CcaSettings
from pipeline.heads.architectures.vse import VseSettings
from pipeline.heads.architectures.zero_shot import ZeroShotSettings
from pipeline.heads.head_types import Finetuning
from pipeline.heads.presets.preset import (
    GLOVE_50,
    GLOVE_300,
    GOOGLENEWS,
    TOKEN_IDS,
    Changes,
    Preset,
    features,
    with_settings,
)

_CLIP = "open-clip:ViT-B-32.laion2b_s34b_b79k"
_SOURCE = "not published; tuned on Flickr8K, see docs/lab/results.md"
_OPEN = "measured with the features of the small size only"
_CAPTIONS = features("tfidf+fv-hglmm-googlenews-300d", "tfidf+fv-hglmm", vectors=GOOGLENEWS)
_SMALL = Changes(captions=features("tfidf+fv-hglmm", sample=20_000))

_CCA = Preset(
    "cca",
    CcaSettings(dim=128, image_ridge=0.03, caption_ridge=0.003, image_scaling="rooted"),
    "resnet152-pool",
    _CAPTIONS,
    source=_SOURCE,
    leaves_open=_OPEN,
    small=_SMALL,
)
_LINEAR = Preset(
    "vse",
    VseSettings(
        cell="none", dim=2048, similarity="cosine", l2_normalise="both", loss="info_nce",
        temperature=0.07, image_scaling="standardised", batch_size=500, learning_rate=0.0005,
        lr_decay=0.7, epochs=8,
    ),
    "resnet152-pool",
    _CAPTIONS,
    source=_SOURCE,
    leaves_open=_OPEN,
    small=_SMALL,
    tiny={"dim": 512, "batch_size": 100, "learning_rate": 0.001, "epochs": 10},
)  # fmt: skip
_GRU = Preset(
    "vse",
    VseSettings(
        bidirectional=True, pooling="max", similarity="cosine", l2_normalise="both",
        loss="info_nce", temperature=0.1, image_scaling="standardised", lr_decay=0.7, epochs=8,
    ),
    "resnet152-pool",
    TOKEN_IDS,
    source=_SOURCE,
    leaves_open=_OPEN,
    word_vectors=GLOVE_300,
    small=Changes({"dim": 512, "word_dim": 50}, word_vectors=GLOVE_50),
    tiny={"dim": 128, "learning_rate": 0.004, "epochs": 11},
)  # fmt: skip
_FINETUNED = replace(
    with_settings(
        _LINEAR,
        batch_size=64, learning_rate=0.0002, lr_decay=0.8, epochs=10, epoch="images",
    ),
    finetuning=Finetuning(start="ours-linear", learning_rate=0.0002, smallest_crop=0.5),
    small=replace(_SMALL, finetuning={"first_layer": "_blocks.5"}),
    tiny={"dim": 512},
)  # fmt: skip
PRESETS = {
    "ours-cca": _CCA,
    "ours-gru": _GRU,
    "ours-linear": _LINEAR,
    "ours-finetuned": _FINETUNED,
    "zero-shot": Preset(
        "zero-shot",
        ZeroShotSettings(),
        _CLIP,
        features(_CLIP),
        source="Radford et al. 2021 (CLIP), section 3.1",
        leaves_open="weights are those of LAION-2B, since OpenAI did not publish the training data "
        "of theirs; captions are encoded without a prompt",
        small=Changes(images=_CLIP),
    ),
}
