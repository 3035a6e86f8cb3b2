"""Yan 2019: transformers over words and over the cells of an image."""

from dataclasses import replace

from pipeline.heads.architectures.relational import RelationalSettings
from pipeline.heads.head_types import Finetuning
from pipeline.heads.presets.preset import GLOVE_50, Changes, Preset, features, with_settings

_FASTTEXT = "fasttext-wikipedia-300d"
_SILENT = "8 attention heads; 4 pools; no dropout"
_OPEN = f"{_SILENT}; the weights of the best validation epoch, in the paper those of the last"
_BASIC = Preset(
    "relational",
    RelationalSettings(),
    "resnet152-grid",
    features("token-ids-yan-fasttext-300d", "token-ids-yan", vectors=_FASTTEXT),
    source="Yan 2019, sections 2.2 to 2.5, 3.3 and 3.4",
    leaves_open=f"{_OPEN}; mean pooling of nodes",
    word_vectors=_FASTTEXT,
    small=Changes(
        {
            "dim": 128, "attention_heads": 4, "word_dim": 50, "batch_size": 64,
            "learning_rate": 0.0005, "lr_milestones": (12, 15), "mean_hinge_epochs": 1,
            "epochs": 17,
        },
        features("token-ids-yan"),
        GLOVE_50,
        images="efficientnet-lite0-grid",
    ),
)  # fmt: skip

PRESETS = {
    "yan2019-transformer-basic": _BASIC,
    "yan2019-transformer-basic-max": replace(
        with_settings(_BASIC, pooling="max"),
        source="Yan 2019, sections 2.2 and 2.3: max pooling of nodes",
        leaves_open=_OPEN,
    ),
    "yan2019-transformer-basic-last-epoch": replace(
        with_settings(_BASIC, selection="last"),
        source="Yan 2019, sections 2.2 to 2.5, 3.3 and 3.4: the final learned weights",
        leaves_open=f"{_SILENT}; mean pooling of nodes",
    ),
    "yan2019-transformer-basic-finetuned": replace(
        with_settings(_BASIC, epochs=5),
        finetuning=Finetuning(start="yan2019-transformer-basic"),
        source="Yan 2019, section 4.1, future work: the grid network tuned, too",
        leaves_open=f"{_OPEN}; mean pooling of nodes; learning rates, epochs, one crop per "
        "image; batch norms keep their running statistics",
        small=replace(
            _BASIC.small,
            settings={
                **_BASIC.small.settings, "learning_rate": 0.0001, "mean_hinge_epochs": 0,
                "epochs": 3,
            },
            finetuning={
                "learning_rate": 0.0001, "smallest_crop": 0.5, "first_layer": "_blocks.5"
            },
        ),
    ),
    "yan2019-transformer-basic-no-positions": replace(
        with_settings(_BASIC, positions=False),
        source="Yan 2019, section 2.1: captions as bags of words, without positions",
    ),
    "yan2019-gru-basic": replace(
        with_settings(_BASIC, layer="gru"),
        source="not published; yan2019-transformer-basic with a GRU over the same cells and words",
        leaves_open="as yan2019-transformer-basic, apart from the layers; no attention heads",
    ),
    "yan2019-graph-attention-basic": replace(
        with_settings(_BASIC, layer="graph-attention"),
        source="Yan 2019, section 1.5.1, which presents graph attention and does not train it",
    ),
    "yan2019-relation-basic": replace(
        with_settings(_BASIC, layer="relation"),
        source="Yan 2019, section 1.5.3, which presents relation networks and does not train one",
    ),
    "yan2019-transformer-pooling": replace(
        with_settings(_BASIC, loss="pooling"),
        tiny={
            "dim": 32, "caption_layers": 1, "batch_size": 32, "learning_rate": 0.002,
            "lr_milestones": (7, 9), "mean_hinge_epochs": 3, "epochs": 14,
        },
    ),
    "yan2019-transformer-cross-attention": with_settings(_BASIC, loss="cross-attention"),
}  # fmt: skip
