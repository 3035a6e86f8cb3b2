"""Faghri et al. 2018: VSE++ and VSE0; Lee et al. 2018: SCAN, whose program builds on VSE++'s."""

from dataclasses import replace
from typing import Any

from pipeline.heads.architectures.scan import ScanSettings
from pipeline.heads.architectures.vse import VseSettings
from pipeline.heads.head_types import Finetuning
from pipeline.heads.presets.preset import SMALL_GRU, TOKEN_IDS, Changes, Preset, with_settings

SMALL: dict[str, Any] = {**SMALL_GRU, "epochs": 8, "lr_decay": 0.2, "lr_decay_every": 5}
_TINY = {"dim": 128, "word_dim": 50}
_VSEPP = Preset(
    "vse",
    VseSettings(
        similarity="cosine", l2_normalise="both", loss="max_of_hinges", margin=0.2,
        learning_rate=0.0002, lr_decay=0.1, lr_decay_every=15, clip=2.0, epochs=30,
    ),
    "resnet152-vsepp-pool",
    TOKEN_IDS,
    source="Faghri et al. 2018 (VSE++), section 4, and the published program",
    leaves_open="no fine-tuning of the image network and no random crops; the vocabulary is that "
    "of the training captions, in the paper also of the validation captions",
    small=Changes({**SMALL, "mean_hinge_epochs": 2}),
    tiny={
        **_TINY, "learning_rate": 0.01, "lr_decay": 0.7, "lr_decay_every": 1,
        "mean_hinge_epochs": 3, "epochs": 12,
    },
)  # fmt: skip
_SCAN = Preset(
    "scan",
    ScanSettings(),
    "resnet152-grid",
    TOKEN_IDS,
    source="Lee et al. 2018 (SCAN), the published program for Flickr30K, text to image",
    leaves_open="grid cells in place of detected regions, as in the baseline of Yan 2019",
    small=Changes(
        {
            "dim": 256, "batch_size": 64, "learning_rate": 0.002, "lr_decay_every": 5,
            "mean_hinge_epochs": 1, "epochs": 8,
        },
        images="efficientnet-lite0-grid",
    ),
)  # fmt: skip

PRESETS = {
    "vsepp": _VSEPP,
    "vsepp-finetuned": replace(
        with_settings(_VSEPP, learning_rate=0.00002, epochs=15),
        finetuning=Finetuning(start="vsepp"),
        leaves_open="one random crop per image and epoch as in the program, whose size the paper "
        "does not state; batch norms keep their running statistics; vocabulary as in vsepp",
        small=Changes(
            # Epochs over images: with five captions per image, epochs over captions cost 5 times.
            {
                **SMALL, "epoch": "images", "epochs": 10, "learning_rate": 0.0002, "lr_decay": 0.8,
                "lr_decay_every": 1,
            },
            finetuning={
                "learning_rate": 0.0001, "smallest_crop": 0.5, "first_layer": "_blocks.5"
            },
        ),
        tiny=_TINY,
    ),
    "vse0": replace(
        with_settings(_VSEPP, loss="sum_of_hinges"),
        leaves_open=f"{_VSEPP.leaves_open}; the program's VSE0, like kiros2014-gru, does not "
        "normalise images; here only the loss differs from vsepp",
        small=Changes(SMALL),
        tiny={},
    ),
    **{
        name: with_settings(_SCAN, similarity=name)
        for name in ("scan-t2i-avg", "scan-t2i-lse", "scan-i2t-avg", "scan-i2t-lse")
    },
}  # fmt: skip
